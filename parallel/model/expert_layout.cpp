#include "parallel/model/expert_layout.h"

namespace ashlar::model {

std::vector<int64_t> first_experts(int64_t experts, int64_t ranks) {
  ASHLAR_CHECK(ranks <= experts, experts, " experts for ", ranks, " ranks");
  std::vector<int64_t> first;
  for (int64_t r = 0; r <= ranks; ++r) first.push_back(r * experts / ranks);
  return first;
}

ExpertLayout expert_layout(const MoeConfig& moe, const tensor::TensorParallel& tp) {
  ExpertLayout layout{.first = 0,
                      .count = 0,
                      .first_of = first_experts(moe.experts, tp.expert_size()),
                      .width = nn::DimShard::part(moe.d_ff, tp.size(), tp.rank())};
  const auto own = static_cast<size_t>(tp.expert_rank());
  layout.first = layout.first_of[own];
  layout.count = layout.first_of[own + 1] - layout.first;
  return layout;
}

nn::TensorAxes expert_axes(const tensor::TensorParallel& tp, AxisSet sharded_over) {
  if (tp.expert_size() == 1) return {.sharded_over = sharded_over};
  const AxisSet replicas = kReplicaAxes - Axis::kExpert;
  return {.sharded_over = sharded_over | Axis::kExpert, .replicated_over = replicas, .grad_summed_over = replicas};
}

}  // namespace ashlar::model
