// Completes a matrix product whose bias the library's epilogue does not support: adds the bias to the product's sums in
// the accumulate type, and rounds. Memory-bound. Only rare combinations of dtypes need it, so the loops are plain: a
// thread processes every (blocks * 256)-th element.

#include "kernels/cuda/gemm/gemm_epilogue.h"

#include "kernels/cuda/dev/vector.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV {

namespace {

/// For each element:  1. adds product, bias and the previous content of c  2. rounds once and stores
template <typename T, typename B>
__global__ void finish_gemm_kernel(const AccumulateOf<T, B>* sums, int64_t sums_stride, const B* bias, T* c,
                                   int64_t stride, int64_t rows, int64_t cols, bool accumulate) {
  using A = AccumulateOf<T, B>;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * cols; i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / cols, col = i % cols;
    // 1. add
    A value = sums != nullptr ? sums[row * sums_stride + col] : A{0};
    if (bias != nullptr) value += static_cast<A>(widen(bias[col]));
    T& out = c[row * stride + col];
    if (accumulate) value += static_cast<A>(widen(out));
    // 2. round and store
    out = narrow<T>(value);
  }
}

__global__ void count_differences_kernel(const uint16_t* a, const uint16_t* b, int64_t pairs, uint32_t* count) {
  uint32_t mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pairs; i += int64_t{gridDim.x} * kThreads)
    mine += a[i] != b[i] ? 1 : 0;
  if (mine != 0) atomicAdd(count, mine);
}

unsigned blocks_of(int64_t n) { return std::min(blocks_for(n, kThreads), 4096U); }

template <typename T, typename B>
void launch_finish(const GemmEpilogue& args, Stream& stream) {
  using A = AccumulateOf<T, B>;
  run_kernel(stream, {.name = "gemm_epilogue", .grid = blocks_of(args.c.size()), .block = kThreads},
             finish_gemm_kernel<T, B>, args.sums ? args.sums.as<A>() : nullptr, args.sums.stride,
             args.bias ? args.bias.as<B>() : nullptr, args.c.as<T>(), args.c.stride, args.c.rows, args.c.cols,
             args.accumulate);
}

template <typename T>
void launch_finish(const GemmEpilogue& args, Stream& stream) {
  if (args.bias && args.bias.dtype == DType::kBFloat16) return launch_finish<T, BF16>(args, stream);
  return launch_finish<T, AccumulateOf<T>>(args, stream);
}

}  // namespace

void gemm_epilogue(const GemmEpilogue& args, Stream& stream) {
  if (args.c.size() == 0) return;
  switch (args.c.dtype) {
    case DType::kFloat64: return launch_finish<double, double>(args, stream);
    case DType::kFloat32: return launch_finish<float>(args, stream);
    default: return launch_finish<BF16>(args, stream);
  }
}

void count_differences(const void* a, const void* b, int64_t bytes, uint32_t* count, Stream& stream) {
  run_kernel(stream, {.name = "count_differences", .grid = blocks_of(bytes / 2), .block = kThreads},
             count_differences_kernel, static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), bytes / 2,
             count);
}

}  // namespace ashlar::ASHLAR_DEV
