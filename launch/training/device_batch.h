#pragma once

#include <vector>

#include "core/autograd/ctx.h"
#include "data/batch.h"
#include "parallel/pipeline/chunk_runner.h"

namespace ashlar::training {

/// One micro-batch in device memory. Reused from step to step: shapes stay, contents change.
class DeviceBatch {
 public:
  /// Copies what the model reads. Learned positions also get their sorted order.
  void upload(const Ctx& ctx, const data::Batch& batch);

  const pipeline::MicroBatch& micro_batch() const { return micro_batch_; }  ///< looks into this one
  const model::BatchView& view() const { return micro_batch_.view; }

 private:
  ConstView put(const Ctx& ctx, Tensor& at, const std::vector<int32_t>& values);

  Tensor ids_, targets_, positions_, doc_start_, order_, position_order_;
  std::vector<int32_t> sorted_positions_, counts_;
  pipeline::MicroBatch micro_batch_;
};

}  // namespace ashlar::training
