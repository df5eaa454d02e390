#include "core/backend/linear.h"

#include "kernels/cuda/column_sums.h"
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

constexpr int64_t kRowsOfBlock = 256;

/// A block sums 32 vectors of columns over 256 rows and writes the sums to partial[blockIdx.y, column].
template <typename T, typename A>
__global__ void column_partials(Rows<const T> x, int64_t rows, int64_t cols, bool vectors, A* partial) {
  const int64_t first = int64_t{blockIdx.y} * kRowsOfBlock;
  const int64_t end = first + kRowsOfBlock < rows ? first + kRowsOfBlock : rows;
  sum_columns(x, first, end, int64_t{blockIdx.x} * kSumLanes * kWidth<T>, cols, vectors,
              [&](int64_t column, A sum) { partial[int64_t{blockIdx.y} * cols + column] = sum; });
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
    const unsigned across = blocks_for(x.cols, kSumLanes * kWidth<T>);
    run_kernel(stream, {.name = "column_partials", .grid = {across, parts}, .block = {kSumLanes, kSumWarps}},
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
