#include "tests/gpu_emulator/emulator.h"

#include <optional>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"
#include "tests/gpu_emulator/memory_watch.h"

namespace ashlar::emulator {
namespace {

std::string extent_text(const dim3& extent) { return str_cat("(", extent.x, ",", extent.y, ",", extent.z, ")"); }

// The limits of sm_80 to sm_90, and what our own kernels keep beyond them.
void check(const Grid& grid) {
  const auto refuse = [&](const std::string& text) { throw Error(str_cat("[", grid.name, "] ", text)); };
  const dim3 &blocks = grid.grid, &threads = grid.block;
  if (threads.count() < 1 || threads.count() > 1024 || threads.z > 64) {
    refuse(str_cat("a block of ", extent_text(threads), " threads: expected 1 to 1024, at most 64 in z"));
  }
  if (threads.count() % 32 != 0) {
    refuse(str_cat("a block of ", threads.count(), " threads: expected whole warps, a multiple of 32"));
  }
  if (blocks.count() < 1 || blocks.x > 0x7fffffffU || blocks.y > 65535 || blocks.z > 65535) {
    refuse(str_cat("a grid of ", extent_text(blocks), " blocks: expected at least 1, at most 65535 in y and z"));
  }
  if (grid.shared_bytes < 0 || grid.shared_bytes > SharedMemory::kMaxBytes) {
    refuse(str_cat("too much shared memory: shared_bytes = ", grid.shared_bytes, ", at most ", SharedMemory::kMaxBytes,
                   " for a block"));
  }
  if (!grid.thread) refuse("no kernel to run");
}

// Names the block of this thread of the host while its threads run.
class Running {
 public:
  explicit Running(Block& block) { internal::current_block = &block; }
  ~Running() { internal::current_block = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace

struct Machine::State {
  Block block;
  std::optional<MemoryWatch> watch;
  const std::map<std::string, Traffic> none = {};
};

Machine::Machine() : state_(std::make_unique<State>()) {}
Machine::~Machine() = default;

void Machine::watch(WatchOptions options) {
  state_->watch.emplace(std::move(options));
  state_->block.set_watch(&*state_->watch);
}

const std::map<std::string, Traffic>& Machine::traffic() const {
  return state_->watch ? state_->watch->traffic().by_kernel() : state_->none;
}

void Machine::clear_traffic() {
  if (state_->watch) state_->watch->traffic().clear();
}

void Machine::run(const Grid& grid, const Schedule& schedule) {
  check(grid);
  ASHLAR_CHECK(internal::current_block == nullptr, "a kernel launches ", grid.name);
  Block& block = state_->block;
  const Running running(block);
  block.begin_grid(grid, schedule);
  try {
    Random random(schedule.seed);
    for (const int64_t number : block_order(grid.grid.count(), schedule.policy, random)) block.run(number);
  } catch (...) {
    block.end_grid();
    throw;
  }
  block.end_grid();
}

void run(const Grid& grid, const Schedule& schedule) { Machine().run(grid, schedule); }

}  // namespace ashlar::emulator
