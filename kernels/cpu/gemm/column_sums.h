#pragma once

#include <span>

#include "core/tensor/view.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// out[j] (+)= sum over n of x[n][j]: the gradient of a bias. x is [N, M] in fp32, bf16 or fp64, with any row stride;
/// out is [M] in the accumulate dtype. Rows are added in blocks of 64 and the blocks in ascending order, so that the
/// bits are the same for any number of threads.
void column_sums(ConstView x, MutView out, bool accumulate, Isa isa, Threads& threads);

/// Computes the same for groups of rows: group g has the rows [offsets[g], offsets[g + 1]), and its sums are at
/// out[g * M].
void column_sums_of_groups(ConstView x, std::span<const int32_t> offsets, MutView out, bool accumulate, Isa isa,
                           Threads& threads);

}  // namespace ashlar::cpu
