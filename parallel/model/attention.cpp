#include "parallel/model/attention.h"

#include <utility>

#include "core/ops/attention.h"
#include "core/ops/clamp.h"
#include "parallel/model/attention_options.h"
#include "parallel/model/init.h"
#include "parallel/model/t5_bias_table.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

Attention::Attention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      tp_(tp),
      slices_(slices_of(config, tp.size(), tp.rank(), layer)),
      heads_(layer_heads(config, layer)),
      layer_(layer),
      name_(str_cat("blocks.", layer, ".attn.")),
      scores_rng_stream_(dropout_rng_stream(layer, "scores")),
      mask_(attention_mask(config, layer)) {}

std::vector<LinearPart> Attention::input_parts() const {
  const nn::DimShard q = slices_.heads.times(heads_.head_dim), k = slices_.kv_heads.times(heads_.head_dim);
  const nn::DimShard v = slices_.kv_heads.times(heads_.v_head_dim);
  const auto part = [&](const char* name, const nn::DimShard& rows, bool queries) {
    const int64_t query_head_dim = queries ? heads_.head_dim : 0;
    return LinearPart{
        .name = name_ + name,
        .rows = rows,
        .bias = config_.bias.qkv,
        .init = matrix_init(config_, {.out = rows.global, .in = config_.d_model, .query_head_dim = query_head_dim}),
        .axes = queries ? nn::kTensorSharded : slices_.kv_axes};
  };
  std::vector<LinearPart> parts = {part("q", q, true), part("k", k, false)};
  if (heads_.values) parts.push_back(part("v", v, false));
  return parts;
}

std::vector<int64_t> Attention::input_widths() const {
  const int64_t G = slices_.kv_heads.size;
  return {(slices_.heads.size + G) * heads_.head_dim + (heads_.values ? G * heads_.v_head_dim : 0)};
}

void Attention::add_inputs(nn::ParameterStore& store) {
  qkv_ = input_product(store, config_, name_ + "qkv", input_parts(), tp_.size());
}

void Attention::add_outputs(nn::ParameterStore& store) {
  out_ = residual_output(store, config_,
                         {.name = name_ + "out",
                          .cols = slices_.heads.times(heads_.v_head_dim),
                          .bias = config_.bias.attn_out,
                          .tensor_rank = tp_.rank(),
                          .layer = layer_});
  if (config_.attn.sinks) {
    sinks_ = &store.add(name_ + "sinks", Shape{slices_.heads.size},
                        {{.name = name_ + "sinks",
                          .role = nn::Role::kBias,
                          .global_shape = Shape{slices_.heads.global},
                          .global_col = slices_.heads.begin,
                          .rows = 1,
                          .cols = slices_.heads.size,
                          .init = {.rule = "0"},
                          .axes = nn::kTensorSharded}});
  }
  if (config_.pos.type == PosType::kT5Bias && !config_.pos.t5_shared)
    t5_bias_ = t5_bias_table(store, config_, {.name = name_ + "t5_bias.weight"}, slices_.heads);
  make_parts(store);
}

void Attention::make_parts(nn::ParameterStore& store) {
  const QkNormConfig& c = config_.qk_norm;
  const int64_t H = slices_.heads.size, G = slices_.kv_heads.size;
  const bool norms = has_qk_norm(config_, layer_), last = norms && c.order == QkNormOrder::kAfterRope;
  ops::HeadPart q{.first = 0, .heads = H, .norm = {}}, k{.first = H, .heads = G, .norm = {}}, v{k};
  if (heads_.values) v.first = H + G;
  v.head_dim = heads_.v_head_dim;
  if (config_.attn.v_norm)
    v.norm = ops::HeadNorm{.variant = {.type = NormType::kRmsNorm, .eps = config_.norm.variant.eps}};
  const bool makes_values = !heads_.values || config_.attn.v_norm;
  if (last && makes_values) before_ = {q, k, v};
  if (norms) {
    q.norm = head_norm(store, "q_norm", slices_.heads, false);
    k.norm = head_norm(store, "k_norm", slices_.kv_heads, true);
    if (c.kind == QkNorm::kFull) over_all_heads_ = std::make_unique<tensor::GroupReduction>(*tp_.group);
  }
  if (last) {
    after_ = {q, k, {.first = H + G, .heads = G, .norm = {}, .head_dim = heads_.v_head_dim}};
  } else if (norms || makes_values) {
    before_ = {q, k, v};
  }
}

ops::HeadNorm Attention::head_norm(nn::ParameterStore& store, const char* name, const nn::DimShard& heads, bool keys) {
  const QkNormConfig& c = config_.qk_norm;
  NormVariant variant = config_.norm.variant;
  variant.type = c.type;
  variant.eps = c.eps;
  // A gain that all heads share gets gradients from the heads of every rank. Other gains are sharded like the heads.
  const bool shared = c.kind == QkNorm::kHead || c.kind == QkNorm::kL2, matrix = c.kind == QkNorm::kHeadPer;
  ops::HeadNorm norm{.variant = variant, .shared_weights = shared, .across = c.kind == QkNorm::kFull};
  const nn::DimShard whole = nn::DimShard::whole(heads_.head_dim);
  const nn::DimShard columns = shared || matrix ? whole : heads.times(heads_.head_dim);
  const auto weight = [&](const char* which, const nn::InitRule& init) {
    nn::ShardedTensor tensor{
        .name = name_ + name + which,
        .role = nn::Role::kNorm,
        .global_shape = Shape{columns.global},
        .global_col = columns.begin,
        .rows = 1,
        .cols = columns.size,
        .init = init,
        .axes = shared ? nn::replicated_and_summed_over(Axis::kTensor) : (keys ? slices_.kv_axes : nn::kTensorSharded)};
    Shape storage{columns.size};
    if (matrix) {
      tensor.global_shape = {heads.global, columns.global};
      tensor.global_row = heads.begin;
      tensor.rows = heads.size;
      storage = {heads.size, columns.size};
    }
    return &store.add(tensor.name, storage, {tensor}).weight;
  };
  if (qk_norm_has_gain(config_)) norm.weights.gamma = weight(".weight", gain_init(config_));
  if (c.bias) norm.weights.beta = weight(".bias", {.rule = "0"});
  return norm;
}

Var Attention::arranged(const Ctx& ctx, const Var& qkv, const std::vector<ops::HeadPart>& parts) const {
  return ops::norm_heads(ctx, qkv, heads_.head_dim, parts, over_all_heads_.get());
}

Var Attention::rotate(const Ctx& ctx, Var qkv, const Rows& rows) const {
  const ops::RopeTables* tables = rows.tables.of(layer_);
  if (tables == nullptr) return qkv;
  return ops::rope(ctx, std::move(qkv), rows.batch.positions, *tables,
                   {.heads = slices_.heads.size + slices_.kv_heads.size,
                    .rotated_heads = slices_.heads.size + slices_.kv_heads.size,
                    .head_dim = heads_.head_dim,
                    .dims = rope_of(config_, layer_).turned,
                    .style = config_.rope.style,
                    .query_heads = slices_.heads.size});
}

Var Attention::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  Var qkv = qkv_(ctx, tensor::enter(ctx, x, tp));
  return forward_from(ctx, {&qkv, 1}, rows);
}

void Attention::add_to_cache(const Ctx& ctx, KvCache& cache) const {
  const int64_t rows = cache.B * cache.capacity, G = slices_.kv_heads.size;
  cache.k[layer_] = ctx.empty(ctx.dtype, {rows, G * heads_.head_dim});
  cache.v[layer_] = ctx.empty(ctx.dtype, {rows, G * heads_.v_head_dim});
}

Var Attention::forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const {
  Var qkv = std::move(inputs[0]);
  const KvCache* cache = rows.cache;
  const ops::AttentionCache held = cache == nullptr ? ops::AttentionCache{} : cache->of_layer(layer_);
  nn::Parameter* const bias = t5_bias_ != nullptr ? t5_bias_ : rows.t5_bias;
  const ops::AttentionOptions options{.B = rows.batch.B,
                                      .T = rows.batch.T,
                                      .H = slices_.heads.size,
                                      .G = slices_.kv_heads.size,
                                      .D = heads_.head_dim,
                                      .D_v = heads_.v_head_dim,
                                      .head0 = slices_.heads.begin,
                                      .global_heads = config_.n_heads,
                                      .mask = rows.with_documents(mask_),
                                      .scores = rows.scores,
                                      .sinks = sinks_ == nullptr ? nullptr : &sinks_->weight,
                                      .t5_bias = bias == nullptr ? nullptr : &bias->weight,
                                      .dropout = config_.dropout.attn,
                                      .dropout_rng_stream = scores_rng_stream_};
  if (!before_.empty()) qkv = arranged(ctx, qkv, before_);
  if (config_.attn.clip_qkv) qkv = ops::clamp(ctx, qkv, *config_.attn.clip_qkv);
  qkv = rotate(ctx, std::move(qkv), rows);
  if (!after_.empty()) qkv = arranged(ctx, qkv, after_);
  return out_(ctx, ops::attention(ctx, {qkv}, options, cache == nullptr ? nullptr : &held));
}

}  // namespace ashlar::model
