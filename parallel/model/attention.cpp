#include "parallel/model/attention.h"

#include <utility>

#include "core/ops/attention.h"
#include "parallel/model/init.h"

namespace ashlar::model {

Attention::Attention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      tp_(tp),
      slices_(slices_of(config, tp.size(), tp.rank())),
      layer_(layer),
      name_(str_cat("blocks.", layer, ".attn.")),
      scores_site_(dropout_site(layer, "scores")) {}

std::vector<LinearPart> Attention::input_parts() const {
  const nn::Extent q = slices_.heads.times(config_.head_dim), kv = slices_.kv_heads.times(config_.head_dim);
  const auto part = [&](const char* name, const nn::Extent& rows) {
    return LinearPart{.name = name_ + name,
                      .rows = rows,
                      .bias = config_.bias.qkv,
                      .init = matrix_init(config_, rows.global, config_.d_model, false)};
  };
  const auto shared = [&](LinearPart p) {  // a KV head that several ranks may hold
    p.grad_partial_axes = slices_.kv_grad_partial_axes;
    p.main_replica = slices_.kv_main_replica;
    return p;
  };
  return {part("q", q), shared(part("k", kv)), shared(part("v", kv))};
}

void Attention::add_input(nn::ParameterStore& store) {
  qkv_ = input_product(store, config_, name_ + "qkv", input_parts(), tp_.size());
}

void Attention::add_output(nn::ParameterStore& store) {
  out_ = residual_output(store, config_,
                         {.name = name_ + "out",
                          .cols = slices_.heads.times(config_.head_dim),
                          .bias = config_.bias.attn_out,
                          .tensor_rank = tp_.rank()});
}

Var Attention::rotate(const Ctx& ctx, Var qkv, const Rows& rows) const {
  if (config_.pos.type != PosType::kRope) return qkv;
  return ops::rope(ctx, std::move(qkv), rows.batch.positions, rows.tables,
                   {.heads = slices_.qkv_heads(),
                    .rotated_heads = slices_.heads.size + slices_.kv_heads.size,
                    .head_dim = config_.head_dim,
                    .dims = config_.rope.dims,
                    .style = config_.rope.style});
}

Var Attention::from_qkv(const Ctx& ctx, Var qkv, const Rows& rows) const {
  const KvCache* cache = rows.cache;
  const ops::AttentionCache held =
      cache == nullptr
          ? ops::AttentionCache{}
          : ops::AttentionCache{
                .k = cache->k[layer_], .v = cache->v[layer_], .capacity = cache->capacity, .length = cache->length};
  const ops::AttentionOptions options{.B = rows.batch.B,
                                      .T = rows.batch.T,
                                      .H = slices_.heads.size,
                                      .G = slices_.kv_heads.size,
                                      .D = config_.head_dim,
                                      .head0 = slices_.heads.begin,
                                      .global_heads = config_.n_heads,
                                      .variant = config_.attn,
                                      .doc_start = rows.batch.doc_start,
                                      .dropout = config_.dropout.attn,
                                      .dropout_site = scores_site_};
  return out_(ctx, ops::attention(ctx, rotate(ctx, std::move(qkv), rows), options, cache == nullptr ? nullptr : &held));
}

}  // namespace ashlar::model
