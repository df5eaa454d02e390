#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/autograd/ctx.h"
#include "data/read/batch.h"
#include "parallel/pipeline/chunk_runner.h"

namespace ashlar::training {

/// One micro-batch in device memory. Reused for every step: the shapes stay, the contents change.
class DeviceBatch {
 public:
  DeviceBatch() = default;
  DeviceBatch(DeviceBatch&&) = default;
  DeviceBatch& operator=(DeviceBatch&&) = default;
  ~DeviceBatch();

  /// Queues one copy of all that the model reads, from pinned memory; learned positions also get their sorted order.
  /// The host waits only if the previous copy has not finished. A target among `masked_ids` (ascending), which the
  /// model never predicts, is an input error.
  void upload(const Ctx& ctx, const data::Batch& batch, std::span<const int64_t> masked_ids = {});

  const pipeline::MicroBatch& micro_batch() const { return micro_batch_; }  ///< views of this batch
  const model::BatchView& view() const { return micro_batch_.view; }

 private:
  Tensor pinned_, device_;         // int32: the vectors of a batch, concatenated
  std::unique_ptr<Event> copied_;  // after it pinned_ may be overwritten
  std::vector<int32_t> sorted_positions_, counts_;
  pipeline::MicroBatch micro_batch_;
};

}  // namespace ashlar::training
