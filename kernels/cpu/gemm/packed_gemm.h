#pragma once

#include "core/device/allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/gemm/gemm.h"

namespace ashlar::cpu {

/// The matrix product by the packed kernels of this folder, for any shape, strides, storage dtype and mode. The
/// division of the sum over k depends only on k, so its bits depend neither on threads nor on other rows and columns.
void packed_gemm(const GemmArgs& args, Isa isa, Threads& threads, Allocator& workspace);

}  // namespace ashlar::cpu
