#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "data/read/prefetcher.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Returns the number of micro-batches per replica and step: train.global_batch / (train.micro_batch * mesh.data). The
/// division leaves no remainder.
int64_t num_micro_batches(const config::RunConfig& config);

/// The micro-batches of the current step and of the next one. The next ones are read before the ranks exchange the
/// message of the current step. The message sums the numbers of valid targets of the next step over all ranks, so the
/// sum is known before the backward pass of the next step.
class StepBatches {
 public:
  /// The references must outlive this object. `micro_batches`: number of micro-batches per step on this replica.
  StepBatches(Engine& engine, data::Prefetcher& reader, size_t micro_batches);

  /// Reads the micro-batches of the next step. An error (damaged data, a masked target) is thrown by `advance`, not
  /// here, so that the current step can finish and its message can inform the other ranks.
  void prefetch();
  /// Makes the micro-batches of the next step the current ones.
  void advance();

  std::vector<pipeline::MicroBatch> current() const;
  double next_wait_ms() const { return next_wait_ms_; }  ///< wait for the data of the next step, if it was read
  /// Writes the counts of the next step into the message of the current one.
  void write_to(StepMessage& mine) const;

 private:
  void read();

  Engine& engine_;
  data::Prefetcher& reader_;
  std::vector<DeviceBatch> current_, next_;
  StepCounts next_counts_;
  double next_wait_ms_ = 0;
  bool read_ = false;                   ///< true if next_ has been read
  bool failed_ = false;                 ///< true if next_ could not be read
  std::exception_ptr error_ = nullptr;  ///< error that stopped reading
};

}  // namespace ashlar::training
