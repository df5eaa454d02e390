#pragma once

#include <vector>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

struct AttentionOptions {
  int64_t B = 0, T = 0;                 ///< number of samples, and of queries per sample
  int64_t T_kv = 0;                     ///< number of keys and values per sample; 0: T
  int64_t H = 0, G = 0, D = 0;          ///< query heads and KV heads of this rank, and head_dim
  int64_t D_v = 0;                      ///< head_dim of the values; 0: D
  int64_t head0 = 0, global_heads = 0;  ///< global index of this rank's first query head, and number of query heads on
                                        ///< all ranks (0: H)
  Mask mask;                            ///< its views must outlive the tape
  ScoreChange scores;         ///< its views must outlive the tape; its sinks and t5_bias are set from the members below
  Weight* sinks = nullptr;    ///< [H], attention sinks of this rank's heads, or null
  Weight* t5_bias = nullptr;  ///< [buckets, H], T5 bias of this rank's heads, or null
  double dropout = 0;
  uint32_t dropout_rng_stream = 0;

  int64_t keys() const { return T_kv > 0 ? T_kv : T; }
  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
};

/// KV cache of one layer. The caller increases `length` by the number of new tokens after all layers have run.
struct AttentionCache {
  Tensor k, v;           ///< [B*capacity, G*D] and [B*capacity, G*D_v] storage dtype
  int64_t capacity = 0;  ///< maximum number of tokens per sample
  int64_t length = 0;    ///< number of cached tokens per sample
};

/// Returns the attention output [B*T, H*D_v] (formulas in core/backend/attention.h). `inputs` contains the queries q
/// [B*T, H*D], keys k [B*T_kv, G*D] and values v [B*T_kv, G*D_v] as one value {[q | k | v]}, as two {q, [k | v]} or as
/// three {q, k, v}. Keys and values may come from another sequence than the queries. With a cache, the new keys and
/// values are appended to the cache, the new queries attend to all cached keys, and nothing is recorded.
Var attention(const Ctx& ctx, const std::vector<Var>& inputs, const AttentionOptions& options,
              const AttentionCache* cache = nullptr);

}  // namespace ashlar::ops
