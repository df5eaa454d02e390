#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/fixed_text.h"
#include "core/base/mesh_axis.h"
#include "parallel/comm/operation.h"

namespace ashlar::watch {

/// Returns an id that is equal in two processes exactly if they see each other's process ids and shared memory.
uint64_t this_machine();
/// Returns a random id for a job. Rank 0 draws it and sends it to the other ranks.
uint64_t new_job();
/// Returns the milliseconds since boot, by the same clock in all processes of a machine.
int64_t machine_ms();

enum class RankState : uint32_t {
  kRunning,
  kFinished,  ///< ended normally
  kFailed,    ///< ended with an error that it prints itself, or because another rank was lost
  kCrashed,   ///< ended by a fatal signal, which it has printed
};

/// The current action of a rank's main thread.
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

/// A communication operation that a rank has issued.
struct OperationRecord {
  comm::OperationInfo info;
  std::array<char, 24> communicator{};  ///< zero-terminated
};

/// A system call on a file that has not returned for long.
struct FileStall {
  int64_t since_ms = 0;           ///< start of the call by machine_ms(); 0: no stall
  std::array<char, 16> thread{};  ///< "main", "reader", "saver", "retain"
  std::array<char, 24> call{};    ///< name of the system call
  std::array<char, 160> file{};   ///< path, zero-terminated; of a long path only the end
};

/// State of a rank, published to the ranks of its node in shared memory. Each field is written atomically by itself.
/// The record of an operation is complete once `operations` counts it.
struct RankPage {
  static constexpr uint64_t kRecords = 16;
  static constexpr std::array<int32_t, kNumAxes> unplaced() {
    std::array<int32_t, kNumAxes> at{};
    at.fill(-1);
    return at;
  }

  RankState state = RankState::kRunning;
  Phase phase = Phase::kStarting;
  uint64_t job = 0;
  uint64_t machine = 0;
  int32_t rank = 0, ranks = 1;
  int32_t pid = 0;  ///< 0: not written yet
  int32_t micro_batch = -1;
  std::array<int32_t, kNumAxes> at = unplaced();  ///< coordinate along each axis of the mesh, -1 until it is known
  uint32_t waiting = 0;                           ///< 1: the main thread waits for other ranks
  uint32_t found_dead = 0;                        ///< 1: another rank has found that this process is dead
  uint64_t started = 0;                           ///< start of the process, in clock ticks since boot
  int64_t heartbeat_ms = 0;                       ///< time of the last heartbeat by machine_ms()
  int64_t step = -1;            ///< current step; -1: before the first; kNoSteps: a command without steps
  int64_t phase_since_ms = 0;   ///< time by machine_ms() at which `phase` was set
  uint64_t progress = 0;        ///< grows with all progress: operations, autograd nodes, bytes read and written
  int64_t progress_ms = 0;      ///< time at which the rank's watch thread last saw `progress` grow
  int64_t longest_step_ms = 0;  ///< longest step so far, in ms
  uint64_t operations = 0;      ///< number of operations issued so far; the last is recent[(operations - 1) % kRecords]
  std::array<OperationRecord, kRecords> recent{};
  std::array<char, 64> host{};
  FileStall stall;                               ///< the longest current stall
  uint32_t stacks_wanted = 0, stacks_given = 0;  ///< number of the last stack request; number of the last answered one
  std::array<char, 4096> stacks{};  ///< answer to the request: stacks of this rank's threads, zero-terminated
};

/// Value of RankPage::step for a command without steps, whose RankPage::phase describes its action.
inline constexpr int64_t kNoSteps = -2;

/// Atomic access to a field that other processes use.
template <typename T>
void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}
template <typename T>
T look_at(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_acquire);
}

/// True if the rank has written its page and has not ended.
inline bool takes_part(const RankPage& page) {
  return look_at(page.pid) != 0 && look_at(page.state) == RankState::kRunning;
}

/// True if the process of `page` exists, running or stopped. `page` must belong to a rank of this machine.
bool process_lives(const RankPage& page);
/// Returns "all_reduce sum fp32[4096] on tensor, operation 12", stored in `memory`; "nothing" before the first
/// operation.
std::string_view last_operation(const RankPage& page, std::span<char> memory);
/// Adds the current action: "forward of micro-batch 2", "validating, batch 7".
FixedText& add_action(FixedText& text, const RankPage& page);
/// Returns "[rank 2 of 4 on hostb] WHAT at step 17, last operation barrier on world, operation 12", stored in `memory`;
/// for a command without steps "WHAT while validating, batch 7, last operation ...". last_operation, add_action and
/// describe do not allocate memory.
std::string_view describe(const RankPage& page, std::string_view what, std::span<char> memory);

}  // namespace ashlar::watch
