#include "core/backend/linear.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/kernel.h"
#include "kernels/cuda/dev/vector.h"
#include "kernels/cuda/gemm/gemm.h"

// Forward and the two gradients of a linear layer are one matrix product each (gemm/gemm.h): 2*N*M*K flops for N rows,
// K inputs and M outputs. They are bound by the tensor cores; if there are few rows, reading w takes longest. Column
// sums (dbias) have their own kernel and are in the accumulate type; cublasLt's epilogue would round them to the
// storage dtype.

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int kLanes = 32, kWarps = 8;
constexpr int64_t kRowsOfBlock = 256;

/// A block sums 32 vectors of columns over 256 rows and writes the sums to partial[blockIdx.y, column].
/// 1. each warp sums every eighth row, each lane one vector of columns  2. the first warp adds the warps' sums in order
template <typename T, typename A>
__global__ void column_partials(Rows<const T> x, int64_t rows, int64_t cols, bool vectors, A* partial) {
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [kWarps][W][kLanes]);
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t col = (int64_t{blockIdx.x} * kLanes + lane) * W;
  const int count = static_cast<int>(col + W <= cols ? W : cols - col);
  const int64_t first = int64_t{blockIdx.y} * kRowsOfBlock;
  const int64_t end = first + kRowsOfBlock < rows ? first + kRowsOfBlock : rows;

  // 1. sum the rows of each warp
  A sums[W] = {};
  if (count > 0) {
    for (int64_t r = first + warp; r < end; r += kWarps) {
      const auto row = load_some<W>(x[r] + col, count, vectors);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sums[i] += row.wide(i);
    }
  }
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) shared[warp][i][lane] = sums[i];
  __syncthreads();

  // 2. add the sums of the warps
  if (warp != 0) return;
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    for (int w = 1; w < kWarps; ++w) sums[i] += shared[w][i][lane];
    if (i < count) partial[int64_t{blockIdx.y} * cols + col + i] = sums[i];
  }
}

/// out[column] (+)= the sum over p of partial[p, column], in ascending order of p.
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
  using A = AccumulateOf<T>;
  const unsigned parts = blocks_for(x.rows, kRowsOfBlock);
  A* const partial = static_cast<A*>(device.scratch(stream, int64_t{parts} * x.cols * static_cast<int64_t>(sizeof(A))));
  if (parts > 0) {
    const unsigned across = blocks_for(x.cols, kLanes * kWidth<T>);
    run_kernel(stream, {.name = "column_partials", .grid = {across, parts}, .block = {kLanes, kWarps}},
               column_partials<T, A>, rows_of<T>(x), x.rows, x.cols, rows_aligned(x, kWidth<T>), partial);
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
