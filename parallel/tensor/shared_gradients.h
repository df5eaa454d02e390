#pragma once

#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"

namespace ashlar::tensor {

/// Sums the main gradients of every piece whose sum_axes has `axis` over `group`, whose ranks hold the same pieces:
/// gradients are then complete and equal, to the bit, on all of them. One operation whatever the number of pieces.
/// Called by all ranks of the group, after the last backward of a step; nothing to do without such pieces.
void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, uint32_t axis, comm::Communicator& group);

}  // namespace ashlar::tensor
