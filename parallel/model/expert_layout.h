#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// The experts of a layer on this rank and on the other ranks of its expert group. Over n ranks, rank r holds experts
/// floor(r E / n) to floor((r + 1) E / n) - 1 of E, and n <= E.
///   ExpertCut::kSlices   n is the size of the expert axis, and r the coordinate. The tensor ranks of a coordinate hold
///                        a slice of each of its experts.
///   ExpertCut::kExperts  n is expert * tensor, and r the coordinates tensor * expert size + expert. The ranks of an
///                        expert group compute only the choices of their experts, which are consecutive: a partial sum
///                        of the layer's result.
struct ExpertLayout {
  comm::Range own;                   ///< experts of this rank
  std::vector<comm::Range> of_rank;  ///< experts of each rank of the expert group
  nn::DimShard width;                ///< columns of the hidden rows of this rank's experts
  /// Experts of the whole expert group.
  comm::Range of_group() const { return {of_rank.front().begin, of_rank.back().end}; }
};

/// Returns the largest size of the expert axis with so many tensor ranks: each rank holds an expert. 1 without experts.
int64_t most_expert_ranks(const ModelConfig& config, int64_t tensor_ranks);

/// Returns the experts of each of `ranks` ranks.
std::vector<comm::Range> divided_experts(int64_t experts, int64_t ranks);
ExpertLayout expert_layout(const MoeConfig& moe, const tensor::TensorParallel& tp);

/// Returns the axes of a tensor of one expert, which is also sharded over `sharded_over`: the ranks of an expert group
/// hold different experts, so that only the other replicas hold the same tensor.
nn::TensorAxes expert_axes(const tensor::TensorParallel& tp, AxisSet sharded_over);

}  // namespace ashlar::model
