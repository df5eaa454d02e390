#pragma once

#include <vector>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

struct AttentionOptions {
  int64_t B = 0, T = 0;                 ///< samples and queries of each
  int64_t T_kv = 0;                     ///< keys and values of each; 0: T
  int64_t H = 0, G = 0, D = 0;          ///< heads of this rank, and head_dim
  int64_t D_v = 0;                      ///< width of a head's values; 0: D
  int64_t head0 = 0, global_heads = 0;  ///< this rank's first query head and those of all ranks; 0: H is all of them
  Mask mask;                            ///< its views outlive the tape
  ScoreChange scores;         ///< its views outlive the tape; sinks and t5_bias are taken from the members below
  Weight* sinks = nullptr;    ///< [H], of these heads; or none
  Weight* t5_bias = nullptr;  ///< [buckets, H], of these heads; or none
  double dropout = 0;
  uint32_t dropout_rng_stream = 0;

  int64_t keys() const { return T_kv > 0 ? T_kv : T; }
  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
};

/// Keys and values of the previous tokens, of one layer. The caller adds the new tokens to `length` after all layers
/// have run.
struct AttentionCache {
  Tensor k, v;  ///< [B*capacity, G*D] and [B*capacity, G*D_v] storage dtype
  int64_t capacity = 0;
  int64_t length = 0;  ///< tokens held of each sample
};

/// Attention (core/backend/attention.h) -> [B*T, H*D_v]. The rows of queries q [B*T, H*D], keys k [B*T_kv, G*D] and
/// values v [B*T_kv, G*D_v] come as one value {[q | k | v]}, as two {q, [k | v]} or as three {q, k, v}; keys and values
/// may come from another source than the queries. With a cache, new keys and values are written after the old ones, new
/// queries see all of them, and nothing is recorded.
Var attention(const Ctx& ctx, const std::vector<Var>& inputs, const AttentionOptions& options,
              const AttentionCache* cache = nullptr);

}  // namespace ashlar::ops
