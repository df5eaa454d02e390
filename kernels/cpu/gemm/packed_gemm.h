#pragma once

#include "core/device/allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/gemm/gemm.h"

namespace ashlar::cpu {

/// The product by this folder's packed kernels: any shape, strides, storage dtype and mode. The sum over k is split by
/// k only, so its bits depend neither on threads nor on other rows and columns.
void packed_gemm(const GemmArgs& args, Isa isa, Threads& threads, Allocator& workspace);

}  // namespace ashlar::cpu
