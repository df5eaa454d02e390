#include "tests/gpu_emulator/memory_watch.h"

#include <link.h>

#include <algorithm>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {
namespace {

constexpr uintptr_t kLine = 64;
constexpr size_t kKnownLines = 1 << 14;

const char* verb(RaceDetector::Kind kind) {
  switch (kind) {
    case RaceDetector::Kind::kRead: return "reads";
    case RaceDetector::Kind::kWrite: return "writes";
    case RaceDetector::Kind::kAtomic: return "atomically changes";
  }
  return "?";
}

}  // namespace

MemoryWatch::MemoryWatch(WatchOptions options) : options_(std::move(options)) {
  races_.set_ordered(options_.ordered);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* ranges) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0) continue;
          const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          static_cast<std::vector<Range>*>(ranges)->push_back({begin, begin + part.p_memsz});
        }
        return 0;
      },
      &constants_);
}

void MemoryWatch::begin_launch(const Grid& grid) {
  grid_ = &grid;
  const int num_threads = static_cast<int>(grid.block.count());
  races_.begin_launch(grid.launch, num_threads);
  traffic_.begin_launch(grid.name, num_threads);
  known_lines_.assign(kKnownLines, 1);  // none: memory may have been released since the last launch
}

std::optional<MemoryWatch::Fault> MemoryWatch::access(const Block& block, const Access& access,
                                                      const void* return_address) {
  const Space space = space_of(block, access);
  if (space == Space::kConstant) return std::nullopt;
  const uint32_t site = sites_.of(return_address);
  if (std::string wrong = judge(block, access, space, block.running(), site); !wrong.empty()) {
    return Fault{.place = sites_.text(site), .text = std::move(wrong)};
  }
  const auto address =
      space == Space::kShared ? block.shared().address(access.address) : reinterpret_cast<uintptr_t>(access.address);
  count(access, space, address, block.running(), site);
  return std::nullopt;
}

std::optional<MemoryWatch::Fault> MemoryWatch::access(const Block& block, const Access& access, int thread, Loc loc) {
  const Space space = space_of(block, access);
  std::string wrong = judge(block, access, space, thread, sites_.of(loc));
  if (wrong.empty()) return std::nullopt;
  return Fault{.place = loc.text(), .text = std::move(wrong)};
}

void MemoryWatch::count(const Block& block, const Access& access, Loc loc) {
  const Space space = space_of(block, access);
  const auto address =
      space == Space::kShared ? block.shared().address(access.address) : reinterpret_cast<uintptr_t>(access.address);
  count(access, space, address, block.running(), sites_.of(loc));
}

MemoryWatch::Space MemoryWatch::space_of(const Block& block, const Access& access) {
  if (block.shared().contains(access.address)) return Space::kShared;
  if (is_device_memory(access.address, access.bytes)) return Space::kGlobal;
  const auto address = reinterpret_cast<uintptr_t>(access.address), grid = reinterpret_cast<uintptr_t>(grid_);
  // The std::function that calls the kernel is the launch's, not the kernel's.
  if (address >= grid && address < grid + sizeof(Grid)) return Space::kConstant;
  return access.kind == Kind::kRead && is_constant(access.address) ? Space::kConstant : Space::kNone;
}

bool MemoryWatch::is_device_memory(const void* address, int64_t bytes) {
  if (!options_.is_device_memory) return true;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) / kLine * kLine;
  uintptr_t& known = known_lines_[begin / kLine * 0x9e3779b97f4a7c15ULL >> 50];
  static_assert(kKnownLines == 1 << 14);  // the upper 14 bits
  const auto within_line = static_cast<uintptr_t>(bytes) <= begin + kLine - reinterpret_cast<uintptr_t>(address);
  if (within_line && known == begin) return true;
  if (within_line && options_.is_device_memory(reinterpret_cast<const void*>(begin), kLine)) {
    known = begin;
    return true;
  }
  return options_.is_device_memory(address, bytes);
}

bool MemoryWatch::is_constant(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::any_of(constants_.begin(), constants_.end(),
                     [&](const Range& range) { return at >= range.begin && at < range.end; });
}

std::string MemoryWatch::judge(const Block& block, const Access& access, Space space, int thread, uint32_t site) {
  const auto address = reinterpret_cast<uintptr_t>(access.address);
  const auto what = [&] { return str_cat(verb(access.kind), " ", access.bytes, " bytes"); };
  if (space == Space::kNone) {
    return str_cat(what(), " of memory that is not the device's",
                   options_.describe ? ": " + options_.describe(access.address) : std::string());
  }
  const auto below = static_cast<uintptr_t>(access.bytes - 1);
  const bool power_of_two = (static_cast<uintptr_t>(access.bytes) & below) == 0;
  if (access.width == Width::kWhole && power_of_two && (address & below) != 0) {
    return str_cat("misaligned: ", what(), " at an address that is no multiple of them");
  }
  const RaceDetector::Access seen{
      .address = address, .bytes = access.bytes, .kind = access.kind, .thread = thread, .site = site};
  std::optional<RaceDetector::Race> race;
  if (space == Space::kShared) {
    RaceDetector::Access in_arena = seen;
    in_arena.address = block.shared().address(access.address);
    if (!block.shared().allocated(static_cast<uint32_t>(in_arena.address), access.bytes)) {
      return str_cat("out of bounds: ", what(), " of shared memory, ",
                     block.shared().describe(static_cast<uint32_t>(in_arena.address)));
    }
    race = races_.shared_access(in_arena, SharedMemory::kArenaBytes);
  } else if (space == Space::kGlobal) {
    race = races_.global_access(seen);
  }
  return race ? race_text(*race, access, space) : std::string();
}

std::string MemoryWatch::race_text(const RaceDetector::Race& race, const Access& access, Space space) {
  const uint3 other = index_in(grid_->block, race.other_thread);
  std::string text =
      str_cat("race: ", verb(access.kind), space == Space::kShared ? " shared" : " global", " memory (byte ", race.byte,
              " of ", access.bytes, ") that thread (", other.x, ",", other.y, ",", other.z, ")");
  if (race.other_block >= 0) text += " of another block";
  if (race.other_launch >= 0) text += str_cat(" of launch ", race.other_launch);
  text += str_cat(" ", verb(race.other_kind), " at ", sites_.text(race.other_site), ": ");
  if (race.other_launch >= 0) return text + "nothing orders the launches";
  if (race.other_block >= 0) return text + "nothing orders the blocks";
  return text + "nothing orders them; is a __syncthreads or __syncwarp missing?";
}

// What is no single instruction counts as one for each aligned word.
void MemoryWatch::count(const Access& access, Space space, uintptr_t address, int thread, uint32_t site) {
  using Count = TrafficCounter::Kind;
  const bool reads = access.kind == Kind::kRead;
  const Count kind = space == Space::kShared ? (reads ? Count::kSharedRead : Count::kSharedWrite)
                                             : (reads ? Count::kRead : Count::kWrite);
  const int64_t step = access.width == Width::kWhole ? access.bytes : std::min<int64_t>(access.bytes, 4);
  for (int64_t done = 0; done < access.bytes; done += step) {
    traffic_.count({.address = address + static_cast<uintptr_t>(done),
                    .bytes = std::min(step, access.bytes - done),
                    .kind = kind,
                    .thread = thread,
                    .site = site});
  }
}

}  // namespace ashlar::emulator
