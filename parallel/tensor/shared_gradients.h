#pragma once

#include <span>

#include "core/nn/flat_ranges.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::tensor {

/// Sums the main gradients within `ranges`, of every tensor whose grad_partial_axes has `axis`, over `group`, whose
/// ranks hold the same tensors and ranges of them: gradients are then complete and equal, to the bit, on all of them.
/// One operation whatever the number of tensors. Called by all ranks of the group, after the last backward of a step
/// and the sum over replicas; nothing to do without such tensors.
void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
                          uint32_t axis, comm::Communicator& group);
/// Over every group of a mesh that grad_partial_axes can name.
void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
                          mesh::Mesh& mesh);

}  // namespace ashlar::tensor
