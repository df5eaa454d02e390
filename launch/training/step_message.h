#pragma once

#include <array>
#include <cstdint>

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

/// What the ranks of a run tell each other once a step. Each fills in its own part and gets that of all.
struct StepMessage {
  LossStats losses;               ///< sums and maxima; empty where they are another rank's to tell
  int64_t stop = 0;               ///< the largest exit code that a rank asks to stop with; 0: nobody does
  SaveState save{};               ///< the last of them
  int64_t peak_memory_bytes = 0;  ///< the largest
  StepCounts next;                ///< sums, of the step that follows: its divisor is known before its first backward
  double next_data_wait_ms = 0;   ///< the largest
  int64_t unread = 0;             ///< 1 when a rank could not read its batches of that step
};

/// A message under way. Called by all ranks; stays where it is until `wait` has returned.
class StepExchange {
 public:
  StepExchange(comm::ControlPlane& ranks, const StepMessage& mine);
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  StepMessage wait();

 private:
  std::array<double, 3> sums_;
  std::array<double, 3> maxima_;
  std::array<int64_t, 3> int_sums_;
  std::array<int64_t, 4> int_maxima_;
  comm::Work work_;  // last: it waits for what refers to the others
};

}  // namespace ashlar::training
