#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// The experts of a layer on this rank and on the other ranks of its expert group. Over n ranks, rank r holds experts
/// floor(r E / n) to floor((r + 1) E / n) - 1 of E. With ExpertCut::kSlices these are the n ranks of an expert group,
/// and each of their tensor ranks holds a slice of the experts.
struct ExpertLayout {
  int64_t first = 0, count = 0;   ///< this rank holds experts [first, first + count)
  std::vector<int64_t> first_of;  ///< first expert of each rank of the expert group, then E
  nn::DimShard width;             ///< columns of this rank's experts' hidden rows
};

/// Returns the first expert of each of `ranks` ranks, then the number of experts.
std::vector<int64_t> first_experts(int64_t experts, int64_t ranks);
ExpertLayout expert_layout(const MoeConfig& moe, const tensor::TensorParallel& tp);

/// Returns the axes of a tensor of one expert, which is also sharded over `sharded_over`: the ranks of an expert group
/// hold different experts, so that only the other replicas hold the same tensor.
nn::TensorAxes expert_axes(const tensor::TensorParallel& tp, AxisSet sharded_over);

}  // namespace ashlar::model
