#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "data/read/prefetcher.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Micro-batches that each replica computes in a step: train.global_batch / (train.micro_batch * mesh.data), exact.
int64_t num_micro_batches(const config::RunConfig& config);

/// The micro-batches of the step under way and of the one that follows, which are read before the ranks exchange the
/// message of the first: how many targets a step has is known before its backward.
class StepBatches {
 public:
  /// References must outlive it. `micro_batches`: of a step, on this replica.
  StepBatches(Engine& engine, data::Prefetcher& reader, size_t micro_batches);

  /// Reads those of the following step. An error (damaged data, a target that is masked) is thrown by `advance`: the
  /// step under way can end, and its message tells the other ranks.
  void prefetch();
  /// The following step begins.
  void advance();

  std::vector<pipeline::MicroBatch> current() const;
  /// Writes what the ranks must know of the following step into the message of this one.
  void tell(StepMessage& mine) const;

 private:
  void read();

  Engine& engine_;
  data::Prefetcher& reader_;
  std::vector<DeviceBatch> current_, next_;
  StepCounts next_counts_;
  double next_wait_ms_ = 0;
  bool read_ = false;                   ///< next_ is there
  bool failed_ = false;                 ///< it could not be read
  std::exception_ptr error_ = nullptr;  ///< why
};

}  // namespace ashlar::training
