#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/cross_entropy.h"
#include "core/nn/layer_metrics.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

using checkpoint::SaveState;

/// Number of tokens and of valid targets of a step.
struct StepCounts {
  int64_t tokens = 0;
  int64_t valid_targets = 0;
};

/// The rank with the longest own work in a step, without waits.
struct SlowestRank {
  int64_t rank = -1;  ///< -1: unknown
  double ms = 0;      ///< rounded to microseconds; if times are equal, `rank` is the highest of these ranks
};

/// Values that the ranks of a run exchange once per step. Each rank fills in its own part and receives the values
/// reduced over all ranks. To add a field, add it here and select its reduction in the constructor of StepExchange.
/// Metrics of layers need no change here.
struct StepMessage {
  LossStats losses;               ///< sums and maxima; zero if another rank reports the same values
  nn::LayerMetricValues layers;   ///< metrics declared by layers (GlobalLayerMetrics), in the same order on all ranks
  int64_t stop = 0;               ///< max: exit code of a requested stop; 0: none
  SaveState save{};               ///< max: state of the save in progress
  int64_t peak_memory_bytes = 0;  ///< max of the peak memory of the processes
  StepCounts next;                ///< sum: counts of the next step, by which its losses and gradients are divided
  double next_data_wait_ms = 0;   ///< max: time that the next step waited for its data
  int64_t unread = 0;             ///< max: 1 when a rank could not read its batches of the next step
  SlowestRank slowest;            ///< max; each rank contributes its own time
  /// Work time of each rank (RankWorkTimer), indexed by rank; each rank fills in its own element. Sent once per
  /// SlowRanks::kWindow steps, in the same message on all ranks, and empty otherwise.
  std::vector<double> rank_ms;
};

/// The reduction of a StepMessage over all ranks, which starts in the constructor. All ranks create it.
class StepExchange {
 public:
  StepExchange(comm::ControlPlane& ranks, const StepMessage& mine);
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  StepMessage wait();

 private:
  /// Values with the same reduction, and pointers to their fields in the message.
  template <typename T>
  struct Numbers {
    std::vector<T> values;
    std::vector<T*> places;
    void add(T& place);
    void put_back() const;
  };
  void sum(double& x) { sums_.add(x); }
  void sum(int64_t& x) { int_sums_.add(x); }
  void largest(double& x) { maxima_.add(x); }
  void largest(int64_t& x) { int_maxima_.add(x); }

  StepMessage message_;
  int64_t save_, slowest_;  ///< message_.save and message_.slowest, encoded as integers
  Numbers<double> sums_, maxima_;
  Numbers<int64_t> int_sums_, int_maxima_;
  comm::Work work_;  // last member: its destructor waits for work that uses the others
};

}  // namespace ashlar::training
