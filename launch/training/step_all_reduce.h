#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/cross_entropy.h"
#include "core/nn/layer_metrics.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

using checkpoint::SaveState;

/// Rows and valid targets of a step.
struct StepCounts {
  int64_t tokens = 0;
  int64_t valid_targets = 0;
};

/// The rank with the longest own work in a step, without waits.
struct SlowestRank {
  int64_t rank = -1;  ///< -1: unknown
  double ms = 0;      ///< rounded to microseconds; if times are equal, `rank` is the highest of these ranks
};

/// Values that the ranks of a run exchange once per step. Each rank fills in its own part and receives the reduced
/// values. A new field is added here and in the constructor of StepExchange, which selects its reduction; metrics of
/// layers need neither.
struct StepMessage {
  LossStats losses;               ///< sums and maxima; zero if another rank reports the same values
  nn::LayerMetricValues layers;   ///< metrics declared by layers (GlobalLayerMetrics), in the same order on all ranks
  int64_t stop = 0;               ///< max: exit code of a requested stop; 0: none
  SaveState save{};               ///< max
  int64_t peak_memory_bytes = 0;  ///< the largest
  StepCounts next;                ///< sum, for the next step: its divisor must be known before its first backward
  double next_data_wait_ms = 0;   ///< the largest
  int64_t unread = 0;             ///< max: 1 when a rank could not read its batches of the next step
  SlowestRank slowest;            ///< max; each rank contributes its own time
  /// The own-work time of each rank, by rank; each rank fills in its own element. Filled once in SlowRanks::kWindow
  /// steps, in the same message on all ranks, and empty otherwise.
  std::vector<double> rank_ms;
};

/// A message that is being reduced. All ranks create it. It must not move until `wait` has returned.
class StepExchange {
 public:
  StepExchange(comm::ControlPlane& ranks, const StepMessage& mine);
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  StepMessage wait();

 private:
  /// Numbers with one reduction, and where the message has them.
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
  int64_t save_, slowest_;  ///< of the message, as numbers
  Numbers<double> sums_, maxima_;
  Numbers<int64_t> int_sums_, int_maxima_;
  comm::Work work_;  // last member: its destructor waits for work that uses the others
};

}  // namespace ashlar::training
