#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu_emulator/emulator.h"
#include "tests/gpu_emulator/race_detector.h"
#include "tests/gpu_emulator/source_line.h"
#include "tests/gpu_emulator/traffic.h"

namespace ashlar::emulator {

class Block;

/// Judges each access of kernels that are compiled with ASHLAR_INSTRUMENTED: may a kernel touch this place, does it
/// touch all of it, is it aligned, is it ordered with all others? And counts it.
class MemoryWatch {
 public:
  using Kind = RaceDetector::Kind;
  enum class Width : uint8_t { kWhole, kParts };  ///< one instruction, or one for each 4 bytes

  explicit MemoryWatch(WatchOptions options);

  void begin_launch(const Grid& grid);
  void begin_block() { races_.begin_block(); }
  void end_block() { traffic_.end_block(); }

  struct Access {
    const void* address;
    int64_t bytes;
    Kind kind;
    Width width = Width::kWhole;
  };
  /// What is wrong with an access, and where it is.
  struct Fault {
    std::string place;
    std::string text;
  };
  /// An access of compiled code, by the thread that runs; not to its own stack.
  std::optional<Fault> access(const Block& block, const Access& access, const void* return_address);
  /// An access of an intrinsic, by the thread of that number. Counted where it is asked for.
  std::optional<Fault> access(const Block& block, const Access& access, int thread, Loc loc);
  void count(const Block& block, const Access& access, Loc loc);
  void count_matrix(const std::array<uint32_t, 8>& rows) { traffic_.count_matrix(rows); }

  RaceDetector& races() { return races_; }
  TrafficCounter& traffic() { return traffic_; }

 private:
  struct Range {
    uintptr_t begin, end;
  };

  // Where it is; empty where kernels may not be.
  enum class Space : uint8_t { kNone, kShared, kGlobal, kConstant };
  Space space_of(const Block& block, const Access& access);
  std::string judge(const Block& block, const Access& access, Space space, int thread, uint32_t site);
  void count(const Access& access, Space space, uintptr_t address, int thread, uint32_t site);
  bool is_device_memory(const void* address, int64_t bytes);
  bool is_constant(const void* address) const;
  std::string race_text(const RaceDetector::Race& race, const Access& access, Space space);

  WatchOptions options_;
  const Grid* grid_ = nullptr;
  std::vector<Range> constants_;        // what is mapped from the program's files and cannot be written
  std::vector<uintptr_t> known_lines_;  // lines of device memory that may be touched, by a hash of them
  Sites sites_;
  RaceDetector races_;
  TrafficCounter traffic_;
};

}  // namespace ashlar::emulator
