#pragma once

#include "kernels/cuda/attention/problem.h"

/// Which keys a query sees. Query t sees key j (both counted from the call's first) iff
/// first_key(t) <= j <= last_key(t): the causal mask ends the range; document, window and chunk begin it, which one
/// small kernel has put into one array beforehand (kernels.h, first_keys).
namespace ashlar::ASHLAR_DEV::attention {

/// The last key that a query may see by its position; -1 for none.
__device__ inline int last_key(const Problem& p, int t) { return min(max(p.diagonal + t, -1), p.T_kv - 1); }

/// The last query that sees key j by its position, at most T_q - 1; below 0 for none. Positions are less than 2^31, and
/// what is added to them too.
__device__ inline int last_query_of_position(const Problem& p, int j) {
  if (!p.limited) return p.T_q - 1;
  const auto i = static_cast<uint32_t>(p.kv_start) + static_cast<uint32_t>(j);
  const auto window = static_cast<uint32_t>(p.window), chunk = static_cast<uint32_t>(p.chunk);
  const uint32_t end = min(min(i + window, i - i % chunk + chunk), 0x7fffffffU);
  return max(min(static_cast<int>(end) - 1 - static_cast<int>(p.q_start), p.T_q - 1), -1);
}

/// The first key that a query sees if it sees any.
__device__ inline int first_key(const Problem& p, int64_t b, int t) {
  return p.first_keys == nullptr ? 0 : p.first_keys[b * p.T_q + t];
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
  if (p.first_keys != nullptr) {
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
