#include "parallel/model/latent_attention.h"

#include <utility>

#include "core/ops/attention.h"
#include "core/ops/concat_shared_head.h"
#include "core/ops/norm.h"
#include "parallel/model/attention_options.h"
#include "parallel/model/init.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

LatentAttention::LatentAttention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      tp_(tp),
      slices_(slices_of(config, tp.size(), tp.rank())),
      layer_(layer),
      name_(str_cat("blocks.", layer, ".attn.")),
      scores_rng_stream_(dropout_rng_stream(layer, "scores")),
      mask_(attention_mask(config, layer)),
      v_head_dim_(layer_heads(config, layer).v_head_dim) {}

LinearPart LatentAttention::by_heads(const char* name, int64_t head_width, int64_t in, bool queries) const {
  const nn::DimShard rows = slices_.heads.times(head_width);
  return {.name = name_ + name,
          .rows = rows,
          .init = matrix_init(config_, {.out = rows.global, .in = in, .query_head_dim = queries ? head_width : 0}),
          .axes = nn::kTensorSharded};
}

nn::Parameter* LatentAttention::add_latent_norm(nn::ParameterStore& store, const char* name, int64_t width) const {
  // All heads use this gain, so each rank's heads give a partial sum of its gradient.
  const nn::ShardedTensor tensor{.name = name_ + name + ".weight",
                                 .role = nn::Role::kNorm,
                                 .global_shape = Shape{width},
                                 .rows = 1,
                                 .cols = width,
                                 .init = {.value = 1, .rule = "1"},
                                 .axes = nn::replicated_and_summed_over(Axis::kTensor)};
  return &store.add(tensor.name, Shape{width}, {tensor});
}

void LatentAttention::add_inputs(nn::ParameterStore& store) {
  const int64_t C = config_.d_model, q_rank = config_.attn.q_rank, kv_rank = config_.attn.kv_rank;
  std::vector<LinearPart> down;
  const auto whole = [&](const char* name, int64_t rows) {
    down.push_back({.name = name_ + name,
                    .rows = nn::DimShard::whole(rows),
                    .bias = config_.bias.qkv,
                    .init = matrix_init(config_, {.out = rows, .in = C}),
                    .axes = tp_.stream_axes()});
  };
  if (q_rank > 0) whole("q_a", q_rank);
  whole("kv_a", kv_rank + rope_dims());
  down_ = LinearLayer(store, name_ + "latents", nn::DimShard::whole(C), down);
  if (q_rank > 0) q_norm_ = add_latent_norm(store, "q_a_norm", q_rank);
  kv_norm_ = add_latent_norm(store, "kv_a_norm", kv_rank);
  const int64_t q_in = q_rank > 0 ? q_rank : C;
  q_ = LinearLayer(store, name_ + (q_rank > 0 ? "q_b" : "q"), nn::DimShard::whole(q_in),
                   {by_heads(q_rank > 0 ? "q_b" : "q", config_.head_dim, q_in, true)});
  kv_ = LinearLayer(store, name_ + "kv_b", nn::DimShard::whole(kv_rank),
                    {by_heads("k_b", nope_dims(), kv_rank, false), by_heads("v_b", v_head_dim_, kv_rank, false)});
}

void LatentAttention::add_outputs(nn::ParameterStore& store) {
  out_ = residual_output(store, config_,
                         {.name = name_ + "out",
                          .cols = slices_.heads.times(v_head_dim_),
                          .bias = config_.bias.attn_out,
                          .tensor_rank = tp_.rank(),
                          .layer = layer_});
}

Var LatentAttention::normed(const Ctx& ctx, const Var& latent, nn::Parameter* gain) const {
  return ops::replicated_norm(ctx, latent, {.gamma = &gain->weight},
                              {.type = NormType::kRmsNorm, .eps = config_.attn.latent_eps});
}

Var LatentAttention::rotated(const Ctx& ctx, Var x, int64_t heads, int64_t head_dim, const Rows& rows) const {
  const ops::RopeTables* tables = rows.tables.of(layer_);
  if (tables == nullptr) return x;
  return ops::rope(
      ctx, std::move(x), rows.batch.positions, *tables,
      {.heads = heads, .rotated_heads = heads, .head_dim = head_dim, .dims = rope_dims(), .style = config_.rope.style});
}

void LatentAttention::add_to_cache(const Ctx& ctx, KvCache& cache) const {
  const int64_t rows = cache.B * cache.capacity, H = slices_.heads.size;
  cache.k[layer_] = ctx.empty(ctx.dtype, {rows, H * config_.head_dim});
  cache.v[layer_] = ctx.empty(ctx.dtype, {rows, H * v_head_dim_});
}

Var LatentAttention::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  const int64_t H = slices_.heads.size, q_rank = config_.attn.q_rank;
  // 1. Compute the latents.
  std::vector<int64_t> widths = {config_.attn.kv_rank, rope_dims()};
  if (q_rank > 0) widths.insert(widths.begin(), q_rank);
  std::vector<Var> latents = split_columns(ctx, tensor::enter(ctx, down_.whole(ctx, x), tp), widths);
  // 2. Compute the queries.
  const Var q_in = q_rank > 0 ? normed(ctx, latents[0], q_norm_) : tensor::enter(ctx, x, tp);
  const Var q = rotated(ctx, q_(ctx, q_in), H, config_.head_dim, rows);
  // 3. Compute the keys and values.
  const Var shared = rotated(ctx, std::move(latents.back()), 1, rope_dims(), rows);
  const Var c_kv = normed(ctx, latents[latents.size() - 2], kv_norm_);
  const std::vector<Var> kv = split_columns(ctx, kv_(ctx, c_kv), {H * nope_dims(), H * v_head_dim_});
  const Var k = ops::concat_shared_head(ctx, shared, kv[0], H);
  // 4. Compute the attention.
  const ops::AttentionOptions options{.B = rows.batch.B,
                                      .T = rows.batch.T,
                                      .H = H,
                                      .G = H,
                                      .D = config_.head_dim,
                                      .D_v = v_head_dim_,
                                      .head0 = slices_.heads.begin,
                                      .global_heads = config_.n_heads,
                                      .mask = rows.with_documents(mask_),
                                      .scores = rows.scores,
                                      .dropout = config_.dropout.attn,
                                      .dropout_rng_stream = scores_rng_stream_};
  const KvCache* cache = rows.cache;
  if (cache == nullptr) return out_(ctx, ops::attention(ctx, {q, k, kv[1]}, options));
  const ops::AttentionCache held = cache->of_layer(layer_);
  return out_(ctx, ops::attention(ctx, {q, k, kv[1]}, options, &held));
}

}  // namespace ashlar::model
