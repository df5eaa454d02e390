#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/cross_entropy.h"
#include "core/nn/layer_metrics.h"
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

/// What the ranks of a run tell each other once a step. Each fills in its own part and gets that of all. A new field
/// goes here and into `exchange` (step_all_reduce.cpp), which says how it joins; what a layer adds up needs neither.
struct StepMessage {
  LossStats losses;               ///< sums and maxima; empty where they are another rank's to tell
  nn::LayerMetricValues layers;   ///< what layers have declared (GlobalLayerMetrics), in the same order on all ranks
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
  /// Numbers that join in one way, taken from a message and put back in the same order.
  template <typename T>
  struct Numbers {
    std::vector<T> values;
    size_t next = 0;
  };
  struct Writer;
  struct Reader;

  StepMessage message_;
  Numbers<double> sums_, maxima_;
  Numbers<int64_t> int_sums_, int_maxima_;
  comm::Work work_;  // last: it waits for what refers to the others
};

}  // namespace ashlar::training
