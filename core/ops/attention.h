#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

struct AttentionOptions {
  int64_t B = 0, T = 0;
  int64_t H = 0, G = 0, D = 0;          ///< of this rank
  int64_t D_v = 0;                      ///< width of a head's values; 0: D
  int64_t head0 = 0, global_heads = 0;  ///< this rank's first query head and those of all ranks; 0: H is all of them
  AttentionVariant variant;
  ConstView doc_start{};      ///< [B*T] kInt32, outlives the tape; absent: one document a sample
  ConstView alibi_slopes{};   ///< [H] accumulate dtype, of these heads, outlives the tape; or absent
  Weight* sinks = nullptr;    ///< [H], of these heads; or none
  Weight* t5_bias = nullptr;  ///< [buckets, H], of these heads; or none
  ConstView t5_buckets{};     ///< kInt32 by distance, with t5_bias, outlives the tape
  double dropout = 0;
  uint32_t dropout_site = 0;

  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
};

/// Keys and values of the tokens before, of one layer; the caller counts the new ones once all layers have them.
struct AttentionCache {
  Tensor k, v;  ///< [B*capacity, G*D] and [B*capacity, G*D_v] storage dtype
  int64_t capacity = 0;
  int64_t length = 0;  ///< tokens held of each sample
};

/// Causal attention over rows [q heads | k heads | v heads]: qkv [B*T, (H+G)*D + G*D_v] -> [B*T, H*D_v]. With a cache,
/// new keys and values are written behind the old ones, new queries see all of them, and nothing is recorded.
Var attention(const Ctx& ctx, const Var& qkv, const AttentionOptions& options, const AttentionCache* cache = nullptr);

/// The same of values that are apart: q [B*T, H*D], k [B*T, G*D], v [B*T, G*D_v].
struct AttentionRows {
  Var q, k, v;
};
Var attention(const Ctx& ctx, const AttentionRows& rows, const AttentionOptions& options,
              const AttentionCache* cache = nullptr);

}  // namespace ashlar::ops
