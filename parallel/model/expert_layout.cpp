#include "parallel/model/expert_layout.h"

namespace ashlar::model {

int64_t most_expert_ranks(const ModelConfig& config, int64_t tensor_ranks) {
  if (config.expert_layers() == 0) return 1;
  return config.moe.experts / (config.moe.tensor == ExpertCut::kExperts ? tensor_ranks : 1);
}

std::vector<comm::Range> divided_experts(int64_t experts, int64_t ranks) {
  ASHLAR_CHECK(ranks <= experts, experts, " experts for ", ranks, " ranks");
  std::vector<comm::Range> of_rank;
  for (int64_t r = 0; r < ranks; ++r) of_rank.push_back({r * experts / ranks, (r + 1) * experts / ranks});
  return of_rank;
}

ExpertLayout expert_layout(const MoeConfig& moe, const tensor::TensorParallel& tp) {
  const bool whole = moe.tensor == ExpertCut::kExperts;
  const int64_t width = whole ? tp.size() : 1;
  const std::vector<comm::Range> all = divided_experts(moe.experts, tp.expert_size() * width);
  ExpertLayout layout{
      .own = {}, .of_rank = {}, .width = nn::DimShard::part(moe.d_ff, whole ? 1 : tp.size(), whole ? 0 : tp.rank())};
  for (int64_t r = 0; r < tp.expert_size(); ++r)
    layout.of_rank.push_back(all[static_cast<size_t>((whole ? tp.rank() * tp.expert_size() : 0) + r)]);
  layout.own = layout.of_rank[static_cast<size_t>(tp.expert_rank())];
  return layout;
}

nn::TensorAxes expert_axes(const tensor::TensorParallel& tp, AxisSet sharded_over) {
  if (tp.expert_size() == 1) return {.sharded_over = sharded_over};
  const AxisSet replicas = kReplicaAxes - Axis::kExpert;
  return {.sharded_over = sharded_over | Axis::kExpert, .replicated_over = replicas, .grad_summed_over = replicas};
}

}  // namespace ashlar::model
