#pragma once

#include <cstdint>
#include <span>

#include "core/nn/flat_ranges.h"

namespace ashlar::nn {

/// Fills the ranges with their tensors' initial values (InitRule), in any floating dtype: Philox normals of (seed,
/// global name, global index), so that a tensor is initialized equally for any sharding.
void initialize(const Ctx& ctx, uint64_t seed, std::span<const ShardedRange> ranges, const FlatTensor& buffer);

}  // namespace ashlar::nn
