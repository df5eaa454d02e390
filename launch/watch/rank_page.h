#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/fixed_text.h"
#include "parallel/comm/operation.h"

namespace ashlar::watch {

/// The same for processes that see each other's process ids and memory, and for no others.
uint64_t this_machine();
/// A number that no other job has: rank 0 draws it, the others are told.
uint64_t new_job();
/// Milliseconds since the machine started: the same clock for all its processes.
int64_t machine_ms();

enum class RankState : uint32_t {
  kRunning,
  kFinished,  ///< done as it should be
  kFailed,    ///< left with an error that it says itself, or after a peer
  kCrashed,   ///< said which signal ended it
};

/// What the main thread of a rank is at.
enum class Phase : uint32_t {
  kStarting,
  kLoading,
  kReadingData,
  kForward,
  kBackward,
  kBackwardWeight,
  kTransfer,
  kOptimizer,
  kReporting,
  kStatistics,
  kValidating,
  kSaving,
  kGenerating,
  kEnding,
};
std::string_view name_of(Phase phase);  ///< "forward", "reading data", ...

/// An operation as it was issued.
struct OperationRecord {
  comm::OperationInfo info;
  std::array<char, 24> communicator{};  ///< text that ends in a zero
};

/// A call on a file that does not come back.
struct FileStall {
  int64_t since_ms = 0;           ///< by machine_ms(); 0: there is none
  std::array<char, 16> thread{};  ///< "main", "reader", "saver", "retain"
  std::array<char, 24> call{};
  std::array<char, 160> file{};  ///< texts that end in a zero; of a long path the end
};

/// What a rank shows of itself to the ranks of its node, in memory that they share. Fields are written one at a time
/// and read by others; a record of an operation is whole once `operations` counts it.
struct RankPage {
  static constexpr uint64_t kRecords = 16;

  RankState state = RankState::kRunning;
  Phase phase = Phase::kStarting;
  uint64_t job = 0;
  uint64_t machine = 0;
  int32_t rank = 0, ranks = 1;
  int32_t pid = 0;  ///< 0: nobody has written this page yet
  int32_t micro_batch = -1;
  int32_t pipeline = -1, data = -1, tensor = -1;  ///< the rank's place in the mesh, once it has one
  uint32_t waiting = 0;                           ///< the main thread waits for other ranks
  uint32_t found_dead = 0;   ///< whoever saw that this process has ended tells the ranks that did not look
  uint64_t started = 0;      ///< this process, in clock ticks since the machine did
  int64_t heartbeat_ms = 0;  ///< by machine_ms()
  int64_t step = -1;         ///< -1: before the first; kNoSteps
  int64_t phase_since_ms = 0;
  uint64_t progress = 0;        ///< grows with whatever gets done: operations, blocks, bytes read and written
  int64_t progress_ms = 0;      ///< when the rank's watch last saw it grow
  int64_t longest_step_ms = 0;  ///< so far
  uint64_t operations = 0;      ///< issued so far; the last is recent[(operations - 1) % kRecords]
  std::array<OperationRecord, kRecords> recent{};
  std::array<char, 64> host{};
  FileStall stall;                               ///< the longest now
  uint32_t stacks_wanted = 0, stacks_given = 0;  ///< numbers of requests, by whoever reports a hang
  std::array<char, 4096> stacks{};               ///< text that ends in a zero
};

/// RankPage::step of a command that has none: what it does is told by its phase, once it has one.
inline constexpr int64_t kNoSteps = -2;

/// Into or from a field that other processes use.
template <typename T>
void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}
template <typename T>
T look_at(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_acquire);
}

/// Whether the process of the page runs (on this machine), stopped or not.
bool process_lives(const RankPage& page);
/// "all_reduce sum fp32[4096] on tensor, operation 12", in `memory`; "nothing" before the first.
std::string_view last_operation(const RankPage& page, std::span<char> memory);
/// "forward of micro-batch 2", "validating, batch 7", as it is now.
FixedText& add_action(FixedText& text, const RankPage& page);
/// "[rank 2 of 4 on hostb] WHAT at step 17, last operation barrier on world, operation 12", in `memory`; "WHAT while
/// validating, batch 7, last operation ..." of a command without steps. All of these allocate nothing.
std::string_view describe(const RankPage& page, std::string_view what, std::span<char> memory);

}  // namespace ashlar::watch
