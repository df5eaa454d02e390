#pragma once

#include "kernels/cuda/attention/problem.h"

/// Which keys a query sees. Query t sees key j (both counted from the call's first) iff
/// first_key(t) <= j <= last_key(t): the causal mask ends the range, the document begins it.
namespace ashlar::ASHLAR_DEV::attention {

/// The last key that a query may see by its position; -1 for none.
__device__ inline int last_key(const Problem& p, int t) {
  const int64_t last = p.q_start + t - p.kv_start;
  return static_cast<int>(min(max(last, int64_t{-1}), int64_t{p.T_kv} - 1));
}

/// The first key of the query's document, T_kv when it begins later than all keys.
__device__ inline int first_key(const Problem& p, int64_t b, int t) {
  if (p.doc_start == nullptr) return 0;
  const int64_t first = p.doc_start[b * p.T_q + t] - p.kv_start;
  return static_cast<int>(min(max(first, int64_t{0}), int64_t{p.T_kv}));
}

/// Keys that one query sees. Queries past the last see none.
struct KeyRange {
  int first, last;

  __device__ bool contains(int j) const { return j >= first && j <= last; }
};
__device__ inline KeyRange key_range(const Problem& p, int64_t b, int t) {
  if (t >= p.T_q) return {p.T_kv, -1};
  return {first_key(p, b, t), last_key(p, t)};
}

/// Tiles of kKeys keys that one of the queries [t, t_end) sees: all threads of the block call it, at one place.
struct TileRange {
  int begin, end;
};
template <int kKeys>
__device__ TileRange visible_tiles(const Problem& p, int64_t b, int t, int t_end) {
  const int end = last_key(p, t_end - 1) + 1;
  int first = 0;
  if (p.doc_start != nullptr) {
    ASHLAR_SHARED(int, warp_first, [32]);
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    first = p.T_kv;
    for (int i = t + static_cast<int>(threadIdx.x); i < t_end; i += blockDim.x) first = min(first, first_key(p, b, i));
    first = __reduce_min_sync(0xffffffffU, first);
    if (threadIdx.x % 32 == 0) warp_first[warp] = first;
    __syncthreads();
    for (int w = 0; w < warps; ++w) first = min(first, warp_first[w]);
  }
  return {first / kKeys, (end + kKeys - 1) / kKeys};
}

}  // namespace ashlar::ASHLAR_DEV::attention
