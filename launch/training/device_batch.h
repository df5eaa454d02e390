#pragma once

#include <vector>

#include "core/autograd/ctx.h"
#include "data/batch.h"
#include "parallel/model/batch_view.h"

namespace ashlar::training {

/// One micro-batch in device memory. Reused from step to step: shapes stay, contents change.
class DeviceBatch {
 public:
  /// Copies what the model reads. Learned positions also get their sorted order.
  void upload(const Ctx& ctx, const data::Batch& batch);

  const model::BatchView& view() const { return view_; }
  int64_t first_sample() const { return first_sample_; }
  int64_t valid_targets() const { return valid_targets_; }

 private:
  const int32_t* put(const Ctx& ctx, Tensor& at, const std::vector<int32_t>& values);

  Tensor ids_, targets_, positions_, doc_start_, order_, position_order_;
  std::vector<int32_t> sorted_positions_, counts_;
  model::BatchView view_;
  int64_t first_sample_ = 0;
  int64_t valid_targets_ = 0;
};

}  // namespace ashlar::training
