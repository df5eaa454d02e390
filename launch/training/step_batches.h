#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "data/read/prefetcher.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Micro-batches per replica and step: train.global_batch / (train.micro_batch * mesh.data), exact.
int64_t num_micro_batches(const config::RunConfig& config);

/// The micro-batches of the current step and of the next one. The next ones are read before the ranks exchange the
/// message of the current step, so that the number of targets of a step is known before its backward pass.
class StepBatches {
 public:
  /// References must outlive it. `micro_batches`: per step, on this replica.
  StepBatches(Engine& engine, data::Prefetcher& reader, size_t micro_batches);

  /// Reads the micro-batches of the next step. `advance` throws an error of this (damaged data, a masked target), so
  /// that the current step can finish and its message can inform the other ranks.
  void prefetch();
  /// Begins the next step.
  void advance();

  std::vector<pipeline::MicroBatch> current() const;
  /// Writes the counts of the next step into the message of the current one.
  void write_to(StepMessage& mine) const;

 private:
  void read();

  Engine& engine_;
  data::Prefetcher& reader_;
  std::vector<DeviceBatch> current_, next_;
  StepCounts next_counts_;
  double next_wait_ms_ = 0;
  bool read_ = false;                   ///< next_ is read
  bool failed_ = false;                 ///< next_ could not be read
  std::exception_ptr error_ = nullptr;  ///< error that stopped reading
};

}  // namespace ashlar::training
