#include "core/backend/linear.h"

#include <bit>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/gemm.h"
#include "kernels/cuda/dev/kernel.h"

// The three products of a linear layer are one matrix product each (dev/gemm.h): 2*N*M*K flops, bound by the tensor
// cores except for a handful of rows, where reading w bounds them. Column sums are a kernel of our own, in the
// accumulate type: a library's epilogue would round them to storage.

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int kLanes = 32, kWarps = 8;
constexpr int64_t kRowsOfBlock = 256;

template <typename T>
struct Sum {
  using type = float;
};
template <>
struct Sum<double> {
  using type = double;
};

__device__ inline float widened(BF16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
__device__ inline float widened(float v) { return v; }
__device__ inline double widened(double v) { return v; }

/// Sums of 32 columns over 256 rows, partial[block row, column].
/// 1. each warp sums every eighth row, a lane a column  2. the first warp adds the eight sums in their order
template <typename T, typename A>
__global__ void column_partials(const T* x, int64_t rows, int64_t cols, int64_t stride, A* partial) {
  ASHLAR_SHARED(A, sums, [kWarps][kLanes]);
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t col = int64_t{blockIdx.x} * kLanes + lane;
  const int64_t first = int64_t{blockIdx.y} * kRowsOfBlock;
  const int64_t end = first + kRowsOfBlock < rows ? first + kRowsOfBlock : rows;
  A sum = 0;
  if (col < cols) {
    for (int64_t r = first + warp; r < end; r += kWarps) sum += widened(x[r * stride + col]);
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w][lane];
  partial[int64_t{blockIdx.y} * cols + col] = sum;
}

/// out[column] (+)= partials, in the order of their rows.
template <typename A>
__global__ void add_partials(const A* partial, int64_t parts, int64_t cols, A* out, bool accumulate) {
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  A sum = accumulate ? out[col] : A{0};
  for (int64_t p = 0; p < parts; ++p) sum += partial[p * cols + col];
  out[col] = sum;
}

template <typename T>
void column_sums(Device& device, const ConstView& x, const MutView& out, bool accumulate, Stream& stream) {
  using A = typename Sum<T>::type;
  const unsigned parts = blocks_for(x.rows, kRowsOfBlock);
  A* const partial = static_cast<A*>(device.scratch(stream, int64_t{parts} * x.cols * static_cast<int64_t>(sizeof(A))));
  if (parts > 0) {
    run_kernel(stream,
               {.name = "column_partials", .grid = {blocks_for(x.cols, kLanes), parts}, .block = {kLanes, kWarps}},
               column_partials<T, A>, x.as<T>(), x.rows, x.cols, x.stride, partial);
  }
  run_kernel(stream, {.name = "add_partials", .grid = blocks_for(x.cols, 256), .block = 256}, add_partials<A>, partial,
             int64_t{parts}, x.cols, out.as<A>(), accumulate);
}

}  // namespace

void CudaBackend::launch(const LinearForward& args, Stream& stream) {
  gemm(device_, {.a = args.x, .b = args.w, .bias = args.bias, .c = args.y, .transpose_b = true}, stream);
}

void CudaBackend::launch(const LinearBackwardInput& args, Stream& stream) {
  gemm(device_, {.a = args.dy, .b = args.w, .c = args.dx, .accumulate = args.mode == GradMode::kAccumulate}, stream);
}

void CudaBackend::launch(const LinearBackwardWeight& args, Stream& stream) {
  const bool accumulate = args.mode == GradMode::kAccumulate;
  // 1. dw
  if (args.dw)
    gemm(device_, {.a = args.dy, .b = args.x, .c = args.dw, .transpose_a = true, .accumulate = accumulate}, stream);
  // 2. dbias
  if (!args.dbias) return;
  switch (args.dy.dtype) {
    case DType::kFloat32: return column_sums<float>(device_, args.dy, args.dbias, accumulate, stream);
    case DType::kFloat64: return column_sums<double>(device_, args.dy, args.dbias, accumulate, stream);
    default: return column_sums<BF16>(device_, args.dy, args.dbias, accumulate, stream);
  }
}

}  // namespace ashlar::ASHLAR_DEV
