// A residual addition and the norm of the sum.
// Memory-bound: in bf16 it moves 8 B per element (reads x and delta, writes the sum and the normalized sum) instead of
// the 10 B of separate kernels. Rows too wide for registers use the separate kernels of both operations.

#include "core/backend/residual_norm.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/norm_row.h"
#include "kernels/cuda/residual_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// A block has several groups of threads; a group processes one row at a time. For each row a group
/// 0. adds the branches (delta, delta2) to x, rounds and stores the sum, and keeps it in registers
/// 1. computes the mean  2. computes rstd  3. normalizes and stores the row (norm_held_row).
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes)
    residual_norm_forward_kernel(ResidualRows<T> residual, NormParams<T> a, int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(lanes, shared);
  const DropoutMask first(residual.dropout), second(residual.dropout2);
  HeldGain<T, kVector> gain;
  HeldRow<T, kVector> beta, row;
  gain.load(a.gamma, a.unit_offset, a.cols, lanes, group.rank);
  beta.fill(T{});
  if (a.beta != nullptr) beta.load(a.beta, a.cols, lanes, group.rank);
  for (int64_t top = int64_t{blockIdx.x} * group.count; top < a.rows; top += int64_t{gridDim.x} * group.count) {
    const int64_t n = top + group.index;
    gain.gamma.keep_packed();
    beta.keep_packed();
    row.fill(T{});
    if (n < a.rows) {
      ASHLAR_UNROLL
      for (int p = 0; p < kHeld<T>; ++p) {
        const int c = row.column(p, lanes, group.rank), count = a.cols - c;
        if (count <= 0) continue;
        row.vec[p] = residual_sum<T, W>(residual, first, second, n, c,
                                        [&](const T* from) { return load_row<kVector, W>(from, count); });
        store_row<kVector>(residual.y[n] + c, row.vec[p], count);
      }
    }
    norm_held_row(a, group, row, gain, beta, n);
  }
}

}  // namespace

void CudaBackend::launch(const ResidualNormForward& args, Stream& stream) {
  const ResidualForward& residual = args.residual;
  const NormForward& norm = args.norm;
  if (norm.x.size() == 0) return;
  with_storage("residual_norm_forward", norm.x.dtype, [&](auto t) {
    using T = decltype(t);
    if (norm.x.cols > kMaxHeldColumns<T>) {
      CudaBackend::launch(residual, stream);
      CudaBackend::launch(norm, stream);
      return;
    }
    const RowLayout layout = norm_layout<T>(norm.x.cols);
    const bool vectors = norm_vectors(norm.x.cols, kWidth<T>, residual.x, residual.delta, residual.delta2, residual.y,
                                      norm.y, norm.gamma, norm.beta);
    with_flag(vectors, [&](auto vector) {
      run_kernel(stream,
                 {.name = "residual_norm_forward",
                  .grid = layout.blocks(norm.x.rows, 4 * kMultiprocessors),
                  .block = static_cast<unsigned>(layout.threads())},
                 residual_norm_forward_kernel<T, vector.value>,
                 residual_rows<T>(residual, [](const auto& view) { return rows_of<T>(view); }), norm_params<T>(norm),
                 layout.lanes);
    });
  });
}

}  // namespace ashlar::ASHLAR_DEV
