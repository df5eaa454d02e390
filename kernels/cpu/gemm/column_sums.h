#pragma once

#include "core/tensor/view.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// out[j] (+)= sum over rows of x[n][j]: the gradient of a bias.
/// x [N, M] fp32, bf16 or fp64, rows may be strided; out [M] its accumulate dtype. Rows are added in blocks of 64 and
/// the blocks in ascending order: the same bits for any thread count.
void column_sums(ConstView x, MutView out, bool accumulate, Isa isa, Threads& threads);

}  // namespace ashlar::cpu
