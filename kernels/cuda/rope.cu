// Rotary position embeddings of the leading heads of each row.
// Memory-bound: 2 storage elements moved (4 B in bf16) for 3 flops per element. A thread keeps the cosines and sines of
// its pairs in registers for all heads of a row. Both styles turn a pair (a, b) into fma(a, cos, -(b sin)) and fma(b,
// cos, a sin), so that a permutation of the rows of the projection's weight turns one style into the other without
// changing a bit.

#include "core/backend/rope.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int64_t kMaxRopeDims = 1024;

template <typename T>
struct RopeParams {
  using A = AccumulateOf<T>;
  Rows<const T> x;
  Rows<T> y;
  const int32_t* positions;
  Rows<const A> cos, sin;
  int64_t rows;
  int heads, rotated_heads, head_dim, dims;
  bool inverse, accumulate;
  bool copy_rest;     ///< true if y is not x: columns that are not rotated must be copied
  int lanes;          ///< number of threads that process a row
  int items;          ///< number of items of a head; an item is the kPairs pairs that a thread rotates at once
  int heads_at_once;  ///< number of heads that the threads of a row process at the same time
};

/// Number of pairs (a, b) of an item. With kVector, an item of style half is one vector of a and one vector of b; an
/// item of style interleaved is one vector of adjacent pairs.
template <typename T, RopeStyle kStyle, bool kVector>
inline constexpr int kPairs = !kVector                     ? 1
                              : kStyle == RopeStyle::kHalf ? kWidth<T>
                                                           : kWidth<T> / 2;

/// Stores `values` to y, or adds them to y. Without kVector it stores element by element, since a pair of adjacent
/// elements may be misaligned.
template <bool kVector, int W, typename T, typename A>
__device__ __forceinline__ void put(T* y, A (&values)[W], bool accumulate) {
  if (accumulate) {
    const Vec<T, W> old = load_row<kVector, W>(y, W);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] += old.wide(i);
  }
  store_row<kVector>(y, narrow<T>(values), W);
}

/// y (+)= x for units first, first + step, ... below `count`; a unit has W elements.
template <int W, typename T>
__device__ __forceinline__ void pass_through(const T* x, T* y, int first, int count, int step, bool accumulate) {
  using A = AccumulateOf<T>;
  for (int u = first; u < count; u += step) {
    A values[W];
    widen(load<W>(x + u * W), values);
    put<true>(y + u * W, values, accumulate);
  }
}

/// A block has groups of `lanes` threads; a group processes one row at a time. A thread processes one item at a time
/// of every heads_at_once-th head.
/// 1. loads the cosines and sines of the item
/// 2. in its heads, rotates the item and copies columns that are not rotated
/// 3. copies the heads that are not rotated
template <typename T, RopeStyle kStyle, bool kVector>
__global__ void __launch_bounds__(kThreads, 4) rope_kernel(RopeParams<T> r) {
  using A = AccumulateOf<T>;
  constexpr int kP = kPairs<T, kStyle, kVector>;
  constexpr int kUnit = kVector ? kWidth<T> : 1;
  const int groups = kThreads / r.lanes;
  const int group = static_cast<int>(threadIdx.x) / r.lanes, rank = static_cast<int>(threadIdx.x) % r.lanes;
  if (group >= groups) return;
  const int half = r.dims / 2, rest = (r.head_dim - r.dims) / kUnit;
  const int item_step = min(r.items, r.lanes), head = rank / item_step;
  for (int64_t n = int64_t{blockIdx.x} * groups + group; n < r.rows; n += int64_t{gridDim.x} * groups) {
    const T* const x = r.x[n];
    T* const y = r.y[n];
    for (int item = rank % item_step; item < r.items; item += item_step) {
      const int m = item * kP;
      // 1. load the cosines and sines of the item
      A cos[kP] = {}, sin[kP] = {};
      if (m < half) {
        widen(load<kP>(r.cos[r.positions[n]] + m), cos);
        widen(load<kP>(r.sin[r.positions[n]] + m), sin);
      }
      ASHLAR_UNROLL
      for (int i = 0; i < kP; ++i) sin[i] = r.inverse ? -sin[i] : sin[i];
      // 2. rotate the item in its heads, and copy columns that are not rotated
      for (int h = head; h < r.rotated_heads; h += r.heads_at_once) {
        const T* const x_h = x + h * r.head_dim;
        T* const y_h = y + h * r.head_dim;
        if (m < half) {
          if constexpr (kStyle == RopeStyle::kHalf) {
            const Vec<T, kP> first = load<kP>(x_h + m), second = load<kP>(x_h + half + m);
            A a[kP], b[kP];
            ASHLAR_UNROLL
            for (int i = 0; i < kP; ++i) {
              a[i] = fused(static_cast<A>(first.wide(i)), cos[i], -(second.wide(i) * sin[i]));
              b[i] = fused(static_cast<A>(second.wide(i)), cos[i], first.wide(i) * sin[i]);
            }
            put<kVector>(y_h + m, a, r.accumulate);
            put<kVector>(y_h + half + m, b, r.accumulate);
          } else {
            const Vec<T, 2 * kP> both = load_row<kVector, 2 * kP>(x_h + 2 * m, 2 * kP);
            A out[2 * kP];
            ASHLAR_UNROLL
            for (int i = 0; i < kP; ++i) {
              const A a = both.wide(2 * i), b = both.wide(2 * i + 1);
              out[2 * i] = fused(a, cos[i], -(b * sin[i]));
              out[2 * i + 1] = fused(b, cos[i], a * sin[i]);
            }
            put<kVector>(y_h + 2 * m, out, r.accumulate);
          }
        }
        if (r.copy_rest) pass_through<kUnit>(x_h + r.dims, y_h + r.dims, item, rest, r.items, r.accumulate);
      }
    }
    // 3. copy the heads that are not rotated
    if (!r.copy_rest) continue;
    const int done = r.rotated_heads * r.head_dim;
    pass_through<kUnit>(x + done, y + done, rank, (r.heads * r.head_dim - done) / kUnit, r.lanes, r.accumulate);
  }
}

template <typename T, RopeStyle kStyle>
void launch_rope(const Rope& a, Stream& stream) {
  using A = AccumulateOf<T>;
  constexpr int64_t kTablePairs = kPairs<T, kStyle, true>;
  const bool vectors = a.dims % (2 * kTablePairs) == 0 && a.dims % kWidth<T> == 0 && a.head_dim % kWidth<T> == 0 &&
                       rows_aligned_for(kWidth<T>, a.x, a.y) && rows_aligned_for(kTablePairs, a.cos, a.sin);
  with_flag(vectors, [&](auto vector) {
    const int64_t pairs = kPairs<T, kStyle, vector.value>;
    // If the rows alone do not fill the device, several heads are processed at once, and their threads load the same
    // table rows.
    const int64_t items = std::max<int64_t>(1, a.dims / 2 / pairs);
    int64_t at_once = 1;
    while (at_once < a.rotated_heads && 2 * at_once * items <= kThreads &&
           a.x.rows * items * at_once < 512 * kMultiprocessors) {
      at_once *= 2;
    }
    const int64_t lanes = std::min<int64_t>(kThreads, items * at_once);
    const RopeParams<T> params{.x = rows_of<T>(a.x),
                               .y = rows_of<T>(a.y),
                               .positions = static_cast<const int32_t*>(a.positions.data),
                               .cos = rows_of<A>(a.cos),
                               .sin = rows_of<A>(a.sin),
                               .rows = a.x.rows,
                               .heads = static_cast<int>(a.heads),
                               .rotated_heads = static_cast<int>(a.rotated_heads),
                               .head_dim = static_cast<int>(a.head_dim),
                               .dims = static_cast<int>(a.dims),
                               .inverse = a.inverse,
                               .accumulate = a.mode == GradMode::kAccumulate,
                               .copy_rest = a.x.data != a.y.data,
                               .lanes = static_cast<int>(lanes),
                               .items = static_cast<int>(items),
                               .heads_at_once = static_cast<int>(at_once)};
    run_kernel(stream,
               {.name = "rope",
                .grid = num_blocks(div_up(a.x.rows, kThreads / lanes), 16 * kMultiprocessors),
                .block = static_cast<unsigned>(kThreads)},
               rope_kernel<T, kStyle, vector.value>, params);
  });
}

}  // namespace

void CudaBackend::launch(const Rope& args, Stream& stream) {
  if (args.dims > kMaxRopeDims) {
    throw input_error("rope", "expected rope.dims of at most ", kMaxRopeDims, " on the cuda backend, got ", args.dims,
                      "; choose a smaller rope.dims");
  }
  if (args.x.size() == 0) return;
  with_storage("rope", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    if (args.style == RopeStyle::kHalf) return launch_rope<T, RopeStyle::kHalf>(args, stream);
    launch_rope<T, RopeStyle::kInterleaved>(args, stream);
  });
}

}  // namespace ashlar::ASHLAR_DEV
