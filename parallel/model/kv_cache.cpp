#include "parallel/model/kv_cache.h"

namespace ashlar::model {

KvCache::KvCache(const Ctx& ctx, const ModelConfig& config, int64_t kv_heads, int64_t batch, int64_t max_tokens)
    : B(batch), capacity(max_tokens) {
  for (int64_t i = 0; i < config.n_layers; ++i) {
    k.push_back(ctx.empty(ctx.dtype, {B * capacity, kv_heads * config.head_dim}));
    v.push_back(ctx.empty(ctx.dtype, {B * capacity, kv_heads * config.head_dim}));
  }
}

}  // namespace ashlar::model
