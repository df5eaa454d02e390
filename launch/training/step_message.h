#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/backend/loss.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Rows and valid targets of a step.
struct StepCounts {
  int64_t tokens = 0;
  int64_t valid_targets = 0;
};

/// Where a save in the background stands. All ranks together: the last of those that any of them says.
enum class SaveState : uint8_t {
  kNone,     ///< there is none
  kDurable,  ///< all files of the rank are on disk
  kWriting,
  kFailed,
};

/// The rank that has worked longest on a step, waits excluded.
struct SlowestRank {
  int64_t rank = -1;  ///< -1: nobody has told
  double ms = 0;      ///< to the microsecond; of ranks with the same time the highest
};

/// What the ranks of a run tell each other once a step. Each fills in its own part and gets that of all.
struct StepMessage {
  LossStats losses;               ///< sums and maxima; empty where they are another rank's to tell
  int64_t stop = 0;               ///< the largest exit code that a rank asks to stop with; 0: nobody does
  SaveState save{};               ///< the last of them
  int64_t peak_memory_bytes = 0;  ///< the largest
  StepCounts next;                ///< sums, of the step that follows: its divisor is known before its first backward
  double next_data_wait_ms = 0;   ///< the largest
  int64_t unread = 0;             ///< 1 when a rank could not read its batches of that step
  SlowestRank slowest;            ///< of all; each tells its own time
  /// Once in SlowRanks::kWindow steps, on all ranks for the same message, else empty: the time of each rank's own work,
  /// by rank. Each puts its own into its place.
  std::vector<double> rank_ms;
};

/// A message under way. Called by all ranks; stays where it is until `wait` has returned.
class StepExchange {
 public:
  StepExchange(comm::ControlPlane& ranks, const StepMessage& mine);
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  StepMessage wait();

 private:
  std::vector<double> sums_;  // of the losses, then of what is told by rank
  std::array<double, 3> maxima_;
  std::array<int64_t, 3> int_sums_;
  std::array<int64_t, 5> int_maxima_;
  comm::Work work_;  // last: it waits for what refers to the others
};

}  // namespace ashlar::training
