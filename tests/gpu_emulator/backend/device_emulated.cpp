#include <algorithm>
#include <cstdio>
#include <exception>
#include <unordered_map>

#include "kernels/cuda/host/launch_kernel.h"
#include "tests/gpu_emulator/backend/emulated_state.h"
#include "tests/gpu_emulator/shared_memory.h"

namespace ashlar::ASHLAR_DEV {

namespace {

#if defined(ASHLAR_INSTRUMENTED)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif

emulator::Policy policy_of(const std::string& word) {
  for (const auto policy :
       {emulator::Policy::kFifo, emulator::Policy::kLifo, emulator::Policy::kRandom, emulator::Policy::kPct})
    if (word == emulator::policy_name(policy)) return policy;
  throw input_error("emulated", "schedule = \"", word, "\"; choose fifo, lifo, random or pct");
}

emulator::StreamOrder order_of(const std::string& word) {
  if (word == "random") return emulator::StreamOrder::kRandom;
  if (word == "at_once") return emulator::StreamOrder::kAtOnce;
  throw input_error("emulated", "stream_order = \"", word, "\"; choose random or at_once");
}

}  // namespace

Device::State::State(const DeviceOptions& options)
    : gpu({.name = str_cat("emulated device ", options.ordinal),
           .memory_bytes = options.max_memory_bytes,
           .seed = options.seed,
           .order = order_of(options.stream_order),
           .schedule = {.policy = policy_of(options.schedule), .seed = options.seed},
           .watched = kWatched}),
      substitute(options.substitute) {
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    const bool pinned = static_cast<MemoryKind>(kind) == MemoryKind::kPinned;
    allocators[static_cast<size_t>(kind)].emplace(pinned ? gpu.pinned() : gpu.memory());
  }
}

/// The emulator's stream, and what belongs to it.
class DeviceStream final : public Stream {
 public:
  explicit DeviceStream(Device::State& state) : state_(state), inner_(state.gpu.make_stream()) {}
  ~DeviceStream() override {
    if (scratch_ == nullptr) return;
    try {
      inner_->synchronize();  // queued work uses what is given back
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    workspace().release(scratch_);
  }
  void synchronize() override { inner_->synchronize(); }
  void record(Event& event) override { inner_->record(event); }
  void wait_for(Event& event) override { inner_->wait_for(event); }
  void* native() override { return inner_->native(); }

  emulator::VirtualGpu& gpu() { return state_.gpu; }
  const emulator::KernelSubstitute& substitute() const { return state_.substitute; }
  Stream& inner() { return *inner_; }
  void* scratch(int64_t bytes) {
    if (bytes > scratch_bytes_) {
      inner_->synchronize();  // queued work uses what is given back
      if (scratch_ != nullptr) workspace().release(scratch_);
      scratch_ = workspace().allocate(bytes);
      scratch_bytes_ = bytes;
    }
    return scratch_;
  }
  ConstView scratch_view() const { return {scratch_, DType::kUInt8, 1, scratch_bytes_, scratch_bytes_}; }

 private:
  Allocator& workspace() { return *state_.allocators[static_cast<size_t>(MemoryKind::kWorkspace)]; }

  Device::State& state_;
  std::unique_ptr<Stream> inner_;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

namespace {

DeviceStream& own(Stream& stream) { return static_cast<DeviceStream&>(stream); }

}  // namespace

Device::Device(const DeviceOptions& options) : state_(std::make_unique<State>(options)) {}
Device::~Device() = default;

std::string Device::description() const {
  const emulator::VirtualGpu::Options& o = state_->gpu.options();
  return str_cat(o.name, ": CUDA kernels run on the host, threads in ", emulator::policy_name(o.schedule.policy),
                 " order, streams ", o.order == emulator::StreamOrder::kRandom ? "in random order" : "at once",
                 ", seed ", o.seed);
}

int64_t Device::max_shared_bytes() const { return emulator::SharedMemory::kMaxBytes; }

Allocator& Device::allocator(MemoryKind kind) { return *state_->allocators.at(static_cast<size_t>(kind)); }

std::unique_ptr<Stream> Device::make_stream() { return std::make_unique<DeviceStream>(*state_); }

std::unique_ptr<Event> Device::make_event() { return state_->gpu.make_event(); }

void Device::copy(void* to, const void* from, int64_t bytes, Stream& stream) {
  state_->gpu.copy({.name = "copy", .to = to, .from = from, .bytes = bytes}, own(stream).inner());
}

void* Device::scratch(Stream& stream, int64_t bytes) { return own(stream).scratch(bytes); }

const emulator::KernelSubstitute& internal::substitute_of(Stream& stream) { return own(stream).substitute(); }

void internal::launch_kernel(Stream& stream, const Launch& launch, std::function<void()> thread) {
  DeviceStream& s = own(stream);
  s.gpu().launch({.name = launch.name,
                  .grid = launch.grid,
                  .block = launch.block,
                  .shared_bytes = launch.shared_bytes,
                  .thread = std::move(thread)},
                 s.inner());
}

void internal::queue_arithmetic(Stream& stream, const char* name, std::function<void()> run) {
  DeviceStream& s = own(stream);
  s.gpu().queue(name, std::move(run), s.inner());
}

void internal::announce(Device& device, const char* name, Stream& stream,
                        const std::function<void(const std::function<void(const ConstView&, bool)>&)>& tell) {
  DeviceStream& s = own(stream);
  device.state().gpu.announce(name, s.inner(), [&](const auto& touch) {
    tell(touch);
    touch(s.scratch_view(), true);
  });
}

}  // namespace ashlar::ASHLAR_DEV
