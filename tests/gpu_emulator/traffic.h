#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ashlar::emulator {

/// What launches have asked of memory, counted by warp instruction: the lanes' accesses at one place of the code, each
/// lane's n-th there, are one instruction.
struct Traffic {
  int64_t launches = 0;
  int64_t read_bytes = 0;  ///< global memory, as the lanes asked
  int64_t write_bytes = 0;
  int64_t read_sectors = 0;  ///< of 32 bytes, that an instruction touches
  int64_t write_sectors = 0;
  int64_t ideal_read_sectors = 0;  ///< that its different bytes would fill, side by side and aligned
  int64_t ideal_write_sectors = 0;
  int64_t atomics = 0;              ///< by lane, on global memory
  int64_t shared_passes = 0;        ///< of 128 bytes through the 32 banks of shared memory
  int64_t ideal_shared_passes = 0;  ///< without bank conflicts

  Traffic& operator+=(const Traffic& other);
  double sector_ratio() const;  ///< sectors per ideal sector; 1 when there is none
  int64_t bank_conflicts() const { return shared_passes - ideal_shared_passes; }
};

/// Counts by name of the kernel.
class TrafficCounter {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kSharedRead, kSharedWrite };
  struct Access {
    uintptr_t address;  ///< in shared memory its offset
    int64_t bytes;
    Kind kind;
    int thread;
    uint32_t site;
  };

  void begin_launch(const char* kernel, int num_threads);
  void end_block();

  void count(const Access& access);
  void count_atomic() { ++now_->atomics; }
  /// ldmatrix: eight rows of 16 bytes each, at these offsets.
  void count_matrix(const std::array<uint32_t, 8>& rows);

  const std::map<std::string, Traffic>& by_kernel() const { return by_kernel_; }
  void clear() { by_kernel_.clear(); }

 private:
  struct Instruction {
    Kind kind;
    uint32_t lanes = 0;  // that have come by
    std::array<uint8_t, 32> bytes;
    std::array<uintptr_t, 32> addresses;
  };
  // Of one place in the code.
  struct Place {
    std::vector<uint32_t> times;              // by thread: how often it came by
    std::vector<std::vector<uint32_t>> open;  // by warp and time: which of the pool, 0 for none
  };

  uint32_t open_instruction(Kind kind);
  void finish(uint32_t instruction);
  void finish_global(const Instruction& instruction, int64_t& sectors, int64_t& ideal) const;
  void finish_shared(const Instruction& instruction);

  std::map<std::string, Traffic> by_kernel_;
  Traffic* now_ = nullptr;
  int num_threads_ = 0;
  std::vector<Place> places_;  // by site, global and shared memory apart
  std::vector<Instruction> pool_{1};
  std::vector<uint32_t> free_;
};

}  // namespace ashlar::emulator
