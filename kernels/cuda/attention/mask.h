#pragma once

#include <algorithm>
#include <cstdint>

#include "core/backend/attention.h"
#include "kernels/cuda/dev/kernel.h"

/// The attention mask. Query t of sample b sees key j iff first_key(b, t) <= j <= last_key(b, t); t and j count from
/// the first query and the first key of the call. With documents, windows or chunks, a separate kernel (key_ranges in
/// kernels.h) has written first_key to an array, and also last_key if it does not follow from t alone. Neither bound
/// decreases as t grows.
namespace ashlar::ASHLAR_DEV::attention {

/// Keys that one query sees.
struct KeyRange {
  int first, last;

  __device__ bool contains(int j) const { return j >= first && j <= last; }
};

/// The contract's Mask as plain numbers and device addresses. Positions, and sums with positions, are less than 2^31.
struct KeyMask {
  static constexpr int kEveryKey = 0x7fffffff;  ///< a window or chunk of this length hides no key

  int T_q = 0, T_kv = 0;
  int64_t q_start = 0, kv_start = 0;
  int diagonal = 0;       ///< q_start - kv_start: the difference of the positions of query 0 and key 0
  int last_diagonal = 0;  ///< query t sees no key after last_diagonal + t, because of its position
  bool limited = false;   ///< true if `window` or `chunk` hides early keys from a query
  int window = kEveryKey, chunk = kEveryKey;
  const int32_t *doc_start = nullptr, *doc_end = nullptr;  ///< [B * T_q] or null
  bool listed_last_keys = false;                           ///< true if the call needs the array last_keys
  const int* first_keys = nullptr;                         ///< [B * T_q]; null if the first key is 0 for all queries
  const int* last_keys = nullptr;                          ///< [B * T_q]; null if last_by_position gives the last keys

  static KeyMask of(const AttentionShape& s) {
    const Mask& m = s.mask;
    const auto limit = [](int64_t keys) {
      return keys > 0 && keys < kEveryKey ? static_cast<int>(keys) : int{kEveryKey};
    };
    const int64_t diagonal = m.q_start - m.kv_start;
    const int64_t last = m.causal ? diagonal : m.window > 0 ? std::min(diagonal + m.window, s.T_kv) - 1 : s.T_kv - 1;
    return {.T_q = static_cast<int>(s.T_q),
            .T_kv = static_cast<int>(s.T_kv),
            .q_start = m.q_start,
            .kv_start = m.kv_start,
            .diagonal = static_cast<int>(diagonal),
            .last_diagonal = static_cast<int>(last),
            .limited = m.window > 0 || m.chunk > 0,
            .window = limit(m.window),
            .chunk = limit(m.chunk),
            .doc_start = static_cast<const int32_t*>(m.doc_start.data),
            .doc_end = static_cast<const int32_t*>(m.doc_end.data),
            .listed_last_keys = !m.causal && (m.chunk > 0 || m.doc_end)};
  }
  /// True if the call needs the array first_keys.
  bool listed_first_keys() const { return doc_start != nullptr || limited; }

  /// Computes the key range of query t from its position and document. key_ranges stores these values in the arrays.
  __device__ KeyRange find_range(int64_t b, int t) const {
    const int i = static_cast<int>(q_start) + t;
    int first = max(i - window + 1, i - i % chunk), last = min(last_diagonal + t, T_kv - 1);
    if (doc_start != nullptr) first = max(first, doc_start[b * T_q + t]);
    first = min(max(first - static_cast<int>(kv_start), 0), T_kv);
    if (chunk != kEveryKey) last = min(last, last_of_chunk(i) - static_cast<int>(kv_start));
    if (doc_end != nullptr) last = min(last, doc_end[b * T_q + t] - 1 - static_cast<int>(kv_start));
    return {first, max(last, -1)};
  }
  /// first_key and last_key return the first and the last key that query t sees. If the query sees no key, last_key is
  /// less than first_key; it is never less than -1.
  __device__ int first_key(int64_t b, int t) const { return first_keys == nullptr ? 0 : first_keys[b * T_q + t]; }
  __device__ int last_key(int64_t b, int t) const {
    return last_keys == nullptr ? max(last_by_position(t), -1) : last_keys[b * T_q + t];
  }
  /// Returns the last key of query t if last_keys is null; negative if the query sees no key.
  __device__ int last_by_position(int t) const { return min(last_diagonal + t, T_kv - 1); }
  /// Returns the key range of query t; empty for t >= T_q. With kListed = false, which saves registers, last_keys must
  /// be null.
  template <bool kListed = true>
  __device__ KeyRange range(int64_t b, int t) const {
    if (t >= T_q) return {T_kv, -1};
    return {first_key(b, t), kListed ? last_key(b, t) : last_by_position(t)};
  }
  /// first_query and last_query return the first and the last query whose position allows it to see key j. If there is
  /// no such query, last_query is less than first_query. first_query is at most T_q, last_query at least -1.
  __device__ int first_query(int j) const { return min(max(j - last_diagonal, 0), T_q); }
  __device__ int last_query(int j) const {
    if (!limited) return T_q - 1;
    const auto at = static_cast<uint32_t>(kv_start) + static_cast<uint32_t>(j);
    const uint32_t end = min(min(at + window, at - at % chunk + chunk), 0x7fffffffU);
    return max(min(static_cast<int>(end) - 1 - static_cast<int>(q_start), T_q - 1), -1);
  }

 private:
  __device__ int last_of_chunk(int i) const {
    return static_cast<int>(min(static_cast<uint32_t>(i - i % chunk) + chunk - 1, 0x7fffffffU));
  }
};

/// Tiles [begin, end) of keys. visible_tiles returns the range of tiles of kKeys keys that contains all keys that the
/// queries [t, t_end) see. All threads of the block must call it.
struct TileRange {
  int begin, end;
};
template <int kKeys>
__device__ TileRange visible_tiles(const KeyMask& mask, int64_t b, int t, int t_end) {
  const int end = mask.last_key(b, t_end - 1) + 1;
  int first = 0;
  if (mask.first_keys != nullptr) {
    ASHLAR_SHARED(int, warp_first, [32]);
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    first = mask.T_kv;
    for (int i = t + static_cast<int>(threadIdx.x); i < t_end; i += blockDim.x)
      first = min(first, mask.first_key(b, i));
    first = __reduce_min_sync(0xffffffffU, first);
    if (threadIdx.x % 32 == 0) warp_first[warp] = first;
    __syncthreads();
    for (int w = 0; w < warps; ++w) first = min(first, warp_first[w]);
  }
  return {first / kKeys, (end + kKeys - 1) / kKeys};
}

}  // namespace ashlar::ASHLAR_DEV::attention
