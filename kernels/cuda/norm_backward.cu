// Gradients of LayerNorm and RMSNorm of each row or each head of a row, in one kernel or in parts (row sums,
// application). Memory-bound: for 15 flops it reads one storage element of dy, one of x, and one of dx if dx is
// accumulated, and writes one (6 or 8 B in bf16). A group of threads keeps a row of dy and of x in registers between
// the sums and dx, so that each is read once; wider rows use two kernels. A block processes many rows and keeps the
// gains and its partial sums of dgamma and dbeta in registers; a second kernel adds the partial sums of the blocks in a
// fixed order. If rows have heads, a block processes one head.

#include "core/backend/norm.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/norm_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// Inputs and outputs of the backward kernels.
template <typename T>
struct BackwardParams {
  using A = AccumulateOf<T>;
  Rows<const T> dy, x;
  const T* gamma;
  const A* mean;  ///< null if all means are 0 (RMSNorm)
  const A* rstd;
  Rows<T> dx;       ///< null if dx is not wanted
  A* partials;      ///< [blocks][2][slots]: partial sums of dgamma and dbeta (see Slots), or null
  A inverse_total;  ///< 1 / width of the whole row
  bool layernorm, unit_offset, accumulate;
  int64_t rows;
  int cols;       ///< number of columns of a row, or of a head
  int gain_step;  ///< offset between the gains of adjacent heads; 0 if all heads share the gains

  /// Moves all pointers to head h. A block with blockIdx.y = h processes head h.
  __device__ __forceinline__ void select_head(unsigned h) {
    dy.data += int64_t{h} * cols;
    x.data += int64_t{h} * cols;
    if (dx) dx.data += int64_t{h} * cols;
    if (gamma != nullptr) gamma += int64_t{h} * gain_step;
    if (mean != nullptr) mean += int64_t{h} * rows;
    rstd += int64_t{h} * rows;
  }
};

/// A group of threads computes the sums of h and of h * xhat of each row, where h = dy * gain and xhat is the
/// normalized x.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes)
    norm_backward_row_sums_kernel(BackwardParams<T> a, AccumulateOf<T>* sum_h, AccumulateOf<T>* sum_hx, int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(lanes, shared);
  const A offset = a.gamma == nullptr || a.unit_offset ? A{1} : A{0};
  for (int64_t first = int64_t{blockIdx.x} * group.count; first < a.rows; first += int64_t{gridDim.x} * group.count) {
    const int64_t n = first + group.index;
    A sums[2] = {0, 0};
    if (n < a.rows) {
      const A mean = a.mean != nullptr ? a.mean[n] : A{0};
      for (int c = group.rank * W; c < a.cols; c += lanes * W) {
        const int count = a.cols - c;
        const Vec<T, W> dy = load_row<kVector, W>(a.dy[n] + c, count);
        const Vec<T, W> x = load_row<kVector, W>(a.x[n] + c, count);
        const Vec<T, W> gamma = a.gamma != nullptr ? load_row<kVector, W>(a.gamma + c, count) : Vec<T, W>{};
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          const A h = dy.wide(i) * (gamma.wide(i) + offset);
          sums[0] += h;
          sums[1] = fused(h, x.wide(i) - mean, sums[1]);
        }
      }
    }
    group.reduce(sums, Add());
    if (n >= a.rows || group.rank != 0) continue;
    if (sum_h != nullptr) sum_h[n] = sums[0];
    sum_hx[n] = sums[1] * a.rstd[n];
  }
}

/// Returns dx of one element. h = dy * gain, xhat is the normalized x; mean_h and mean_hx are the means of h and of
/// h * xhat over the row.
template <typename A>
__device__ __forceinline__ A dx_of(A h, A xhat, A mean_h, A mean_hx, A rstd) {
  return rstd * fused(-xhat, mean_hx, h - mean_h);
}

/// Layout of a block's partial sums: `count` slots for dgamma, then `count` slots for dbeta. The slots are in the order
/// of threads, not of columns, so that adjacent threads write adjacent numbers. W is `width`, the number of elements
/// of a vector. Element i of vector p of thread `rank` of a group, which is column (p * lanes + rank) * W + i, has slot
/// (p * W + i) * lanes + rank.
struct Slots {
  int lanes, width;
  int64_t count;

  __device__ __forceinline__ int64_t column(int64_t slot) const {
    const int64_t rank = slot % lanes, p = slot / lanes / width, i = slot / lanes % width;
    return (p * lanes + rank) * width + i;
  }
};
template <typename A, int W>
__device__ __forceinline__ void store_partials(A* partials, const Slots& slots, int64_t block, int p, int rank,
                                               const A* dgamma, const A* dbeta) {
  A* const out = partials + block * 2 * slots.count + int64_t{p} * W * slots.lanes + rank;
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    out[i * slots.lanes] = dgamma[i];
    out[slots.count + i * slots.lanes] = dbeta[i];
  }
}

/// A block computes dx for a tile of columns of many rows, and partial sums of dgamma and dbeta over these rows.
template <typename T, bool kVector>
__global__ void __launch_bounds__(ColumnTiles::kThreads)
    norm_backward_apply_kernel(BackwardParams<T> a, const AccumulateOf<T>* sum_h, const AccumulateOf<T>* sum_hx,
                               int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_DYNAMIC_SHARED(A, shared);
  const int groups = ColumnTiles::kThreads / lanes;
  const int rank = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int c = (static_cast<int>(blockIdx.x) * lanes + rank) * W, count = a.cols - c;
  Vec<T, W> gamma{};
  if (a.gamma != nullptr) gamma = load_row<kVector, W>(a.gamma + c, count);
  const A offset = a.gamma == nullptr || a.unit_offset ? A{1} : A{0};
  A grads[2 * W] = {};  // dgamma, dbeta
  if (count > 0) {
    for (int64_t n = int64_t{blockIdx.y} * groups + group; n < a.rows; n += int64_t{gridDim.y} * groups) {
      const Vec<T, W> dy = load_row<kVector, W>(a.dy[n] + c, count);
      const Vec<T, W> x = load_row<kVector, W>(a.x[n] + c, count);
      Vec<T, W> old{};
      if (a.dx && a.accumulate) old = load_row<kVector, W>(a.dx[n] + c, count);
      const A mean = a.mean != nullptr ? a.mean[n] : A{0}, rstd = a.rstd[n];
      const A mean_h = sum_h != nullptr ? sum_h[n] * a.inverse_total : A{0}, mean_hx = sum_hx[n] * a.inverse_total;
      A out[W];
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) {
        const A dy_i = dy.wide(i), xhat = (x.wide(i) - mean) * rstd;
        grads[i] = fused(dy_i, xhat, grads[i]);
        grads[W + i] += dy_i;
        out[i] = old.wide(i) + dx_of(dy_i * (gamma.wide(i) + offset), xhat, mean_h, mean_hx, rstd);
      }
      if (a.dx) store_row<kVector>(a.dx[n] + c, narrow<T>(out), count);
    }
  }
  if (a.partials == nullptr) return;
  add_groups(grads, lanes, group, rank, groups, shared);
  if (group != 0) return;
  store_partials<A, W>(a.partials, {lanes, W, int64_t{gridDim.x} * W * lanes}, blockIdx.y, static_cast<int>(blockIdx.x),
                       rank, grads, grads + W);
}

// Backward in one pass.

/// A block has several groups of threads. A group keeps a row of dy and of x in registers. For each of its rows a group
/// 1. loads its next row if kAhead, otherwise this row  2. sums h and h (x - mean)
/// 3. computes dx, and adds to its sums for dgamma and dbeta.
/// 4. At the end the block adds the sums of its groups and writes them as its partial sums.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes) norm_backward_kernel(BackwardParams<T> a, int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  constexpr int kNumbers = kHeld<T> * W;
  constexpr bool kAhead = sizeof(T) == 2 && kVector;  // loads the next row early, where registers are left for it
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  ASHLAR_DYNAMIC_SHARED(A, exchange);
  RowGroup<A> group(lanes, shared);
  a.select_head(blockIdx.y);
  HeldGain<T, kVector> gain;
  gain.load(a.gamma, a.unit_offset, a.cols, lanes, group.rank);
  A grads[2 * kNumbers] = {};  // dgamma, dbeta
  struct Inputs {
    HeldRow<T, kVector> dy, x, old;
    A mean = 0, rstd = 0;
  };
  const auto fetch = [&](Inputs& in, int64_t n) {
    if (n >= a.rows) return;
    in.dy.load(a.dy[n], a.cols, lanes, group.rank);
    in.x.load(a.x[n], a.cols, lanes, group.rank);
    if (kAhead && a.dx && a.accumulate) in.old.load(a.dx[n], a.cols, lanes, group.rank);
    if (a.mean != nullptr) in.mean = a.mean[n];
    in.rstd = a.rstd[n];
  };
  const int64_t step = int64_t{gridDim.x} * group.count;
  const int64_t first = int64_t{blockIdx.x} * group.count;
  Inputs in, next;
  next.dy.fill(T{});
  next.x.fill(T{});
  next.old.fill(T{});
  if (kAhead) fetch(next, first + group.index);
  for (int64_t n = first; n < a.rows; n += step) {
    const int64_t row = n + group.index;
    // 1. load the next row
    in = next;
    gain.gamma.keep_packed();
    fetch(kAhead ? next : in, kAhead ? row + step : row);
    // 2. sums of h and h (x - mean); the complete second sum is multiplied by rstd below
    A sums[2] = {0, 0};
    if (a.dx) {
      ASHLAR_UNROLL
      for (int p = 0; p < kHeld<T>; ++p) {
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          const A h = in.dy.vec[p].wide(i) * gain(p, i);
          sums[0] += h;
          sums[1] = fused(h, in.x.vec[p].wide(i) - in.mean, sums[1]);
        }
      }
      group.reduce(sums, Add());
      in.dy.keep_packed();
      in.x.keep_packed();
    }
    if (row >= a.rows) continue;
    const A mean_h = a.layernorm ? sums[0] * a.inverse_total : A{0};
    const A mean_hx = sums[1] * in.rstd * a.inverse_total;
    // 3. dx, and sums for dgamma and dbeta
    ASHLAR_UNROLL
    for (int p = 0; p < kHeld<T>; ++p) {
      const int c = in.x.column(p, lanes, group.rank);
      if (!kAhead && a.dx && a.accumulate) in.old.vec[p] = load_row<kVector, W>(a.dx[row] + c, a.cols - c);
      A out[W];
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) {
        const A dy = in.dy.vec[p].wide(i), xhat = (in.x.vec[p].wide(i) - in.mean) * in.rstd;
        grads[p * W + i] = fused(dy, xhat, grads[p * W + i]);
        grads[kNumbers + p * W + i] += dy;
        out[i] = in.old.vec[p].wide(i) + dx_of(dy * gain(p, i), xhat, mean_h, mean_hx, in.rstd);
      }
      if (a.dx) store_row<kVector>(a.dx[row] + c, narrow<T>(out), a.cols - c);
    }
  }
  // 4. the block's partial sums
  if (a.partials == nullptr) return;
  add_groups(grads, lanes, group.index, group.rank, group.count, exchange);
  if (group.index != 0) return;
  ASHLAR_UNROLL
  for (int p = 0; p < kHeld<T>; ++p) {
    store_partials<A, W>(a.partials, {lanes, W, int64_t{kNumbers} * lanes},
                         int64_t{blockIdx.y} * gridDim.x + blockIdx.x, p, group.rank, grads + p * W,
                         grads + kNumbers + p * W);
  }
}

constexpr int kSlices = 8;
/// Adds the blocks' partial sums of 32 slots, for dgamma (blockIdx.y = 0) or dbeta (blockIdx.y = 1). Each of 8 warps
/// adds the partial sums of every 8th block (a slice) in order; then the sums of the slices are added. If heads have
/// separate gains, blockIdx.z is the head.
template <typename A>
__global__ void __launch_bounds__(32 * kSlices)
    norm_add_partials_kernel(const A* partials, int64_t blocks, Slots slots, int64_t cols, A* dgamma, A* dbeta,
                             bool accumulate) {
  ASHLAR_SHARED(A, shared, [kSlices][32]);
  A* const out = blockIdx.y == 0 ? dgamma : dbeta;
  if (out == nullptr) return;
  partials += int64_t{blockIdx.z} * blocks * 2 * slots.count;
  const auto lane = static_cast<int>(threadIdx.x % 32), slice = static_cast<int>(threadIdx.x / 32);
  const int64_t slot = int64_t{blockIdx.x} * 32 + lane;
  const int64_t c = slots.column(slot);
  const bool mine = slot < slots.count && c < cols;
  A sum = 0;
  if (mine) {
#pragma unroll 8
    for (int64_t b = slice; b < blocks; b += kSlices) sum += partials[(b * 2 + blockIdx.y) * slots.count + slot];
  }
  shared[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || !mine) return;
  for (int s = 1; s < kSlices; ++s) sum += shared[s][lane];
  A* const mine_out = out + int64_t{blockIdx.z} * cols + c;
  *mine_out = accumulate ? *mine_out + sum : sum;
}

// Launchers.

template <typename T, typename Args>
BackwardParams<T> backward_params(const Args& a, const ConstView& mean, bool unit_offset) {
  using A = AccumulateOf<T>;
  return {.dy = rows_of<T>(a.dy),
          .x = rows_of<T>(a.x),
          .gamma = static_cast<const T*>(a.gamma.data),
          .mean = static_cast<const A*>(mean.data),
          .rstd = static_cast<const A*>(a.rstd.data),
          .dx = {},
          .partials = nullptr,
          .inverse_total = 0,
          .layernorm = false,
          .unit_offset = unit_offset,
          .accumulate = false,
          .rows = a.x.rows,
          .cols = static_cast<int>(a.x.cols),
          .gain_step = 0};
}

template <typename T>
void launch_row_sums(const BackwardParams<T>& p, bool vectors, AccumulateOf<T>* sum_h, AccumulateOf<T>* sum_hx,
                     Stream& stream) {
  const RowLayout layout = sums_layout<T>(p.cols);
  with_flag(vectors, [&](auto vector) {
    run_kernel(stream,
               {.name = "norm_backward_row_sums",
                .grid = layout.blocks(p.rows, 8 * kMultiprocessors),
                .block = static_cast<unsigned>(layout.threads())},
               norm_backward_row_sums_kernel<T, vector.value>, p, sum_h, sum_hx, layout.lanes);
  });
}

Slots tile_slots(const ColumnTiles& tiles, int width) {
  return {tiles.lanes, width, int64_t{tiles.grid.x} * width * tiles.lanes};
}

template <typename A>
void add_partials(const A* partials, int64_t blocks, const Slots& slots, const MutView& dgamma, const MutView& dbeta,
                  int64_t cols, GradMode mode, Stream& stream, int64_t heads = 1) {
  run_kernel(stream,
             {.name = "norm_add_partials",
              .grid = dim3(static_cast<unsigned>(div_up(slots.count, 32)), 2, static_cast<unsigned>(heads)),
              .block = 32 * kSlices},
             norm_add_partials_kernel<A>, partials, blocks, slots, cols, static_cast<A*>(dgamma.data),
             static_cast<A*>(dbeta.data), mode == GradMode::kAccumulate);
}

}  // namespace

void CudaBackend::launch(const NormBackwardRowSums& args, Stream& stream) {
  if (args.x.rows == 0) return;
  with_storage("norm_backward_row_sums", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    launch_row_sums(backward_params<T>(args, args.mean, args.unit_offset),
                    norm_vectors(args.x.cols, kWidth<T>, args.x, args.dy, args.gamma), static_cast<A*>(args.sum_h.data),
                    static_cast<A*>(args.sum_hx.data), stream);
  });
}

void CudaBackend::launch(const NormBackwardApply& args, Stream& stream) {
  if (args.x.cols == 0) return;
  with_storage("norm_backward_apply", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const bool want_params = args.param_mode != GradMode::kSkip && (args.dgamma || args.dbeta);
    const ColumnTiles tiles = column_tiles(args.x.rows, args.x.cols, kWidth<T>);
    BackwardParams<T> params = backward_params<T>(args, args.mean, args.unit_offset);
    params.inverse_total = A{1} / static_cast<A>(args.c_total);
    params.accumulate = args.dx_mode == GradMode::kAccumulate;
    if (args.dx_mode != GradMode::kSkip) params.dx = rows_of<T>(args.dx);
    const Slots slots = tile_slots(tiles, kWidth<T>);
    if (want_params) {
      params.partials =
          static_cast<A*>(scratch(stream, tiles.grid.y * 2 * slots.count * static_cast<int64_t>(sizeof(A))));
    }
    if (params.dx.data == nullptr && !want_params) return;
    with_flag(norm_vectors(args.x.cols, kWidth<T>, args.x, args.dy, args.dx, args.gamma), [&](auto vector) {
      run_kernel(stream,
                 {.name = "norm_backward_apply",
                  .grid = tiles.grid,
                  .block = ColumnTiles::kThreads,
                  .shared_bytes = int64_t{kWidth<T>} * ColumnTiles::kThreads * static_cast<int64_t>(sizeof(A))},
                 norm_backward_apply_kernel<T, vector.value>, params, static_cast<const A*>(args.sum_h.data),
                 static_cast<const A*>(args.sum_hx.data), tiles.lanes);
    });
    if (!want_params) return;
    add_partials(params.partials, tiles.grid.y, slots, args.dgamma, args.dbeta, args.x.cols, args.param_mode, stream);
  });
}

void CudaBackend::launch(const NormBackward& args, Stream& stream) {
  if (args.x.cols == 0) return;
  const bool layernorm = args.variant.type == NormType::kLayerNorm;
  const ConstView mean = layernorm ? args.mean : ConstView{};
  const bool want_params = args.param_mode != GradMode::kSkip && (args.dgamma || args.dbeta);
  if (args.dx_mode == GradMode::kSkip && !want_params) return;
  const bool own_gains =
      args.heads > 1 && gain_step(args.gamma ? args.gamma : ConstView(args.dgamma), args.x.cols, args.heads) > 0;
  with_storage("norm_backward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const int64_t rows = args.x.rows, cols = args.x.cols / args.heads;
    const bool vectors = norm_vectors(cols, kWidth<T>, args.x, args.dy, args.dx, args.gamma);
    BackwardParams<T> params = backward_params<T>(args, mean, args.variant.unit_offset);
    params.layernorm = layernorm;
    params.inverse_total = A{1} / static_cast<A>(cols);
    params.accumulate = args.dx_mode == GradMode::kAccumulate;
    if (args.dx_mode != GradMode::kSkip) params.dx = rows_of<T>(args.dx);
    params.cols = static_cast<int>(cols);
    params.gain_step = own_gains ? params.cols : 0;
    // Rows too wide for registers use two kernels: the first computes the sums of rows, the second computes dx.
    const bool wide = cols > kMaxHeldColumns<T>;
    if (wide && args.heads > 1) {
      throw input_error("norm_backward", "expected normalized heads of at most ", kMaxHeldColumns<T>,
                        " columns on the cuda backend, got ", cols,
                        "; choose a smaller model.head_dim, or run.device = \"cpu\"");
    }
    const RowLayout layout = row_layout(div_up(cols, kWidth<T>), kHeld<T>, kMaxRowLanes, kMaxRowLanes);
    const ColumnTiles tiles = column_tiles(rows, cols, kWidth<T>);
    const int64_t blocks = wide ? tiles.grid.y : layout.blocks(rows, div_up(kMultiprocessors, args.heads));
    const Slots slots = wide ? tile_slots(tiles, kWidth<T>)
                             : Slots{layout.lanes, kWidth<T>, int64_t{kHeld<T> * kWidth<T>} * layout.lanes};
    const int64_t partials = want_params ? args.heads * blocks * 2 * slots.count : 0;
    A* const space =
        static_cast<A*>(scratch(stream, (partials + (wide ? 2 * rows : 0)) * static_cast<int64_t>(sizeof(A))));
    if (want_params) params.partials = space;
    A* const sum_h = space + partials;
    A* const sum_hx = sum_h + rows;
    if (wide) launch_row_sums(params, vectors, sum_h, sum_hx, stream);
    with_flag(vectors, [&](auto vector) {
      if (wide) {
        run_kernel(stream,
                   {.name = "norm_backward_apply",
                    .grid = tiles.grid,
                    .block = ColumnTiles::kThreads,
                    .shared_bytes = int64_t{kWidth<T>} * ColumnTiles::kThreads * static_cast<int64_t>(sizeof(A))},
                   norm_backward_apply_kernel<T, vector.value>, params, layernorm ? sum_h : nullptr, sum_hx,
                   tiles.lanes);
      } else {
        run_kernel(stream,
                   {.name = "norm_backward",
                    .grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.heads), 1),
                    .block = static_cast<unsigned>(layout.threads()),
                    .shared_bytes = int64_t{kHeld<T> * kWidth<T>} * layout.threads() * static_cast<int64_t>(sizeof(A))},
                   norm_backward_kernel<T, vector.value>, params, layout.lanes);
      }
    });
    if (!want_params) return;
    add_partials(params.partials, own_gains ? blocks : args.heads * blocks, slots, args.dgamma, args.dbeta, cols,
                 args.param_mode, stream, own_gains ? args.heads : 1);
  });
}

}  // namespace ashlar::ASHLAR_DEV
