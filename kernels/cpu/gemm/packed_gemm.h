#pragma once

#include <span>

#include "core/device/allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/gemm/gemm.h"

namespace ashlar::cpu {

/// Computes a matrix product with packed panels, for any shape, strides and storage dtype. The division of the sum over
/// k depends only on k, so the bits of a result depend neither on the number of threads nor on other rows and columns.
void packed_gemm(const GemmArgs& args, Isa isa, Threads& threads, Allocator& workspace);

/// Computes products of one storage dtype, which must not write to the same memory. The bits are those of packed_gemm.
void packed_gemms(std::span<const GemmArgs> products, Isa isa, Threads& threads, Allocator& workspace);

}  // namespace ashlar::cpu
