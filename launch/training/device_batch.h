#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/autograd/ctx.h"
#include "data/read/batch.h"
#include "parallel/pipeline/chunk_runner.h"

namespace ashlar::training {

/// A micro-batch in device memory. One object is refilled at every step; its buffers are reallocated only if the size
/// changes.
class DeviceBatch {
 public:
  DeviceBatch() = default;
  DeviceBatch(DeviceBatch&&) = default;
  DeviceBatch& operator=(DeviceBatch&&) = default;
  ~DeviceBatch();

  /// Queues one copy of the batch from pinned memory to the device. Also copies the order of the tokens by position,
  /// for the gradient of learned position embeddings. The host waits only if the previous copy has not finished. Input
  /// error if a target is one of `masked_ids` (ascending), the token ids that the model never predicts.
  void upload(const Ctx& ctx, const data::Batch& batch, std::span<const int64_t> masked_ids = {});

  const pipeline::MicroBatch& micro_batch() const { return micro_batch_; }  ///< views of the tensors in device memory
  const model::BatchView& view() const { return micro_batch_.view; }

 private:
  Tensor pinned_, device_;         // int32: the vectors of a batch, concatenated
  std::unique_ptr<Event> copied_;  // reached when the copy is complete and pinned_ may be overwritten
  std::vector<int32_t> sorted_positions_, counts_;
  pipeline::MicroBatch micro_batch_;
};

}  // namespace ashlar::training
