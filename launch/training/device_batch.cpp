#include "launch/training/device_batch.h"

#include <algorithm>
#include <utility>

#include "core/device/wait_in_destructor.h"

namespace ashlar::training {

DeviceBatch::~DeviceBatch() { wait_in_destructor(copied_.get()); }

namespace {

void check_targets(const data::Batch& batch, std::span<const int64_t> masked_ids) {
  if (masked_ids.empty()) return;
  for (size_t n = 0; n < batch.targets.size(); ++n) {
    if (!std::ranges::binary_search(masked_ids, int64_t{batch.targets[n]})) continue;
    throw input_error("data", "sample ", batch.first_sample + static_cast<int64_t>(n) / batch.T, ": token ",
                      batch.targets[n], " is a target, but head.masked_ids excludes it from predictions; ",
                      "train on data without that token, or remove it from head.masked_ids");
  }
}

}  // namespace

void DeviceBatch::upload(const Ctx& ctx, const data::Batch& batch, std::span<const int64_t> masked_ids) {
  check_targets(batch, masked_ids);
  // Sorts the token indices by position with a stable counting sort, so that the gradient of the position embedding is
  // summed in a fixed order.
  counts_.assign(batch.T + 1, 0);
  for (const int32_t p : batch.positions) {
    ASHLAR_CHECK(p >= 0 && p < batch.T, "expected a position within the sequence, got ", p, ", sequence length ",
                 batch.T);
    ++counts_[p + 1];
  }
  for (int64_t p = 0; p < batch.T; ++p) counts_[p + 1] += counts_[p];
  sorted_positions_.resize(batch.positions.size());
  for (size_t n = 0; n < batch.positions.size(); ++n)
    sorted_positions_[counts_[batch.positions[n]]++] = static_cast<int32_t>(n);

  micro_batch_ = {
      .view = {.B = batch.B, .T = batch.T}, .first_sample = batch.first_sample, .valid_targets = batch.valid_targets};
  model::BatchView& view = micro_batch_.view;
  const std::pair<ConstView*, const std::vector<int32_t>*> vectors[] = {{&view.ids, &batch.ids},
                                                                        {&view.targets, &batch.targets},
                                                                        {&view.positions, &batch.positions},
                                                                        {&view.doc_start, &batch.doc_start},
                                                                        {&view.order, &batch.order},
                                                                        {&view.position_order, &sorted_positions_}};
  constexpr int64_t kAlign = 64;  // elements (256 bytes): aligns each vector for GPU loads
  const auto room_for = [](const std::vector<int32_t>& values) {
    return (static_cast<int64_t>(values.size()) + kAlign - 1) / kAlign * kAlign;
  };
  int64_t size = 0;
  for (const auto& [place, values] : vectors) size += room_for(*values);

  if (copied_) copied_->synchronize();
  if (!pinned_ || pinned_.size() != size) {
    pinned_ = ctx.empty(DType::kInt32, {size}, MemoryKind::kPinned);
    device_ = ctx.empty(DType::kInt32, {size});
    copied_ = ctx.backend.make_event();
  }
  int32_t* to = pinned_.mut_view().as<int32_t>();
  int64_t at = 0;
  for (const auto& [place, values] : vectors) {
    std::copy(values->begin(), values->end(), to + at);
    std::fill(to + at + values->size(), to + at + room_for(*values), 0);
    if (!values->empty()) *place = device_.flat_range(at, static_cast<int64_t>(values->size())).view();
    at += room_for(*values);
  }
  ctx.backend.copy_from_host(to, device_.mut_view(), ctx.stream);
  ctx.stream.record(*copied_);
}

}  // namespace ashlar::training
