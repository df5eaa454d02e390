#include "launch/training/device_batch.h"

#include <algorithm>

namespace ashlar::training {

ConstView DeviceBatch::put(const Ctx& ctx, Tensor& at, const std::vector<int32_t>& values) {
  if (values.empty()) return {};
  const int64_t n = static_cast<int64_t>(values.size());
  if (!at || at.size() != n) at = ctx.empty(DType::kInt32, {n});
  ctx.backend.write(values.data(), at.mut_view(), ctx.stream);
  return at.view();
}

void DeviceBatch::upload(const Ctx& ctx, const data::Batch& batch) {
  // Positions sorted stably, for the deterministic gradient of a learned table.
  counts_.assign(batch.T + 1, 0);
  for (const int32_t p : batch.positions) {
    ASHLAR_CHECK(p >= 0 && p < batch.T, "position ", p, " of ", batch.T);
    ++counts_[p + 1];
  }
  for (int64_t p = 0; p < batch.T; ++p) counts_[p + 1] += counts_[p];
  sorted_positions_.resize(batch.positions.size());
  for (size_t n = 0; n < batch.positions.size(); ++n)
    sorted_positions_[counts_[batch.positions[n]]++] = static_cast<int32_t>(n);

  micro_batch_ = {
      .view = {.B = batch.B, .T = batch.T}, .first_sample = batch.first_sample, .valid_targets = batch.valid_targets};
  model::BatchView& view = micro_batch_.view;
  view.ids = put(ctx, ids_, batch.ids);
  view.targets = put(ctx, targets_, batch.targets);
  view.positions = put(ctx, positions_, batch.positions);
  view.doc_start = put(ctx, doc_start_, batch.doc_start);
  view.order = put(ctx, order_, batch.order);
  view.position_order = put(ctx, position_order_, sorted_positions_);
}

}  // namespace ashlar::training
