#pragma once

#include <cstdint>
#include <span>

#include "core/nn/flat_ranges.h"

namespace ashlar::nn {

/// Fills the ranges with the initial values of their tensors (InitRule), in any floating dtype. Normal numbers come
/// from Philox and depend only on (seed, tensor name, index in the global tensor), so that the values are the same for
/// any sharding.
void initialize(const Ctx& ctx, uint64_t seed, std::span<const ShardedRange> ranges, const FlatTensor& buffer);

}  // namespace ashlar::nn
