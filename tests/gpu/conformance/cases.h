#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/dev/kernel.h"
#include "tests/gpu/conformance/case.h"

namespace ashlar::ASHLAR_DEV::conformance {

using ::ashlar::conformance::Case, ::ashlar::conformance::Inputs, ::ashlar::conformance::kBlocks,
    ::ashlar::conformance::kThreads;

/// Each file's own.
std::span<const Case> arithmetic_cases();
std::span<const Case> function_cases();
std::span<const Case> warp_cases();
std::span<const Case> memory_cases();

/// A word, with the one NaN that stands for all: which it is, no standard says.
__device__ __forceinline__ uint32_t word(float x) { return x != x ? 0x7fffffffU : __float_as_uint(x); }
__device__ __forceinline__ void put(uint32_t* out, double x) {
  const auto bits = x != x ? 0x7fffffffffffffffULL : static_cast<unsigned long long>(__double_as_longlong(x));
  out[0] = static_cast<uint32_t>(bits);
  out[1] = static_cast<uint32_t>(bits >> 32);
}
__device__ __forceinline__ double get(const uint32_t* in) {
  return __longlong_as_double(static_cast<long long>(uint64_t{in[1]} << 32 | in[0]));
}
/// This thread's number in the grid.
__device__ __forceinline__ int thread_of_grid() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

}  // namespace ashlar::ASHLAR_DEV::conformance
