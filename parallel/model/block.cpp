#include "parallel/model/block.h"

#include "core/ops/activation.h"
#include "core/ops/attention.h"

namespace ashlar::model {

Block::Block(nn::ParameterStore& store, const ModelConfig& c, int64_t index)
    : config_(c),
      index_(index),
      name_(str_cat("blocks.", index)),
      fused_(c.block.topology == Topology::kParallel && c.block.parallel_norms == 1) {
  const int64_t C = c.d_model, F = c.d_ff;
  const std::string attn = name_ + ".attn.", ffn = name_ + ".ffn.";
  const auto into = [&](const std::string& part, int64_t rows, bool bias) {
    return LinearPart{.name = part, .rows = rows, .bias = bias, .init = matrix_init(c, rows, C, false)};
  };
  norm1_ = NormLayer(store, name_ + ".norm1", c);
  std::vector<LinearPart> qkv{into(attn + "q", c.q_width(), c.bias.qkv), into(attn + "k", c.kv_width(), c.bias.qkv),
                              into(attn + "v", c.kv_width(), c.bias.qkv)};
  std::vector<LinearPart> wide;
  if (c.ffn.gated) wide.push_back(into(ffn + "gate", F, c.bias.ffn));
  wide.push_back(into(ffn + "up", F, c.bias.ffn));
  if (fused_) {
    qkv.insert(qkv.end(), wide.begin(), wide.end());
    qkv_ = LinearLayer(store, name_ + ".qkv_ffn_in", C, qkv);
  } else {
    qkv_ = LinearLayer(store, attn + "qkv", C, qkv);
    norm2_ = NormLayer(store, name_ + ".norm2", c);
    ffn_in_ = LinearLayer(store, ffn + "in", C, wide);
  }
  attn_out_ = LinearLayer(
      store, attn + "out", c.q_width(),
      {{.name = attn + "out", .rows = C, .bias = c.bias.attn_out, .init = matrix_init(c, C, c.q_width(), true)}});
  ffn_down_ = LinearLayer(store, ffn + "down", F,
                          {{.name = ffn + "down", .rows = C, .bias = c.bias.ffn, .init = matrix_init(c, C, F, true)}});
}

uint32_t Block::dropout_site(const char* where) const {
  return static_cast<uint32_t>(site_of(str_cat(name_, ".dropout.", where)));
}

Var Block::rotate(const Ctx& ctx, const Var& qkv, const BatchView& batch, const ops::RopeTables& tables) const {
  if (config_.pos.type != PosType::kRope) return qkv;
  return ops::rope(ctx, qkv, batch.positions, tables,
                   {.heads = config_.n_heads + 2 * config_.n_kv_heads,
                    .rotated_heads = config_.n_heads + config_.n_kv_heads,
                    .head_dim = config_.head_dim,
                    .dims = config_.rope.dims,
                    .style = config_.rope.style});
}

Var Block::feed_forward(const Ctx& ctx, const Var& x, const Var* up) const {
  return ffn_down_(ctx, ops::activation(ctx, x, up, config_.ffn.act));
}

Var Block::ffn_from_input(const Ctx& ctx, const Var& h) const {
  const Var in = ffn_in_(ctx, h);
  if (!config_.ffn.gated) return feed_forward(ctx, in, nullptr);
  const std::vector<Var> parts = split_columns(ctx, in, {config_.d_ff, config_.d_ff});
  return feed_forward(ctx, parts[0], &parts[1]);
}

Var Block::combine(const Ctx& ctx, const Var& x, const Attend& attend) const {
  const auto branch = [&](const Var& v, const char* where) {
    return ops::Branch{.value = v, .dropout = config_.dropout.resid, .site = dropout_site(where)};
  };
  const Var h = norm1_(ctx, x);
  if (config_.block.topology == Topology::kSerial) {
    const Var mid = ops::residual(ctx, &x, branch(attn_out_(ctx, attend(qkv_(ctx, h))), "attn"), nullptr);
    return ops::residual(ctx, &mid, branch(ffn_from_input(ctx, norm2_(ctx, mid)), "ffn"), nullptr);
  }
  Var qkv;
  Var f;
  if (fused_) {
    std::vector<int64_t> widths{config_.q_width() + 2 * config_.kv_width(), config_.d_ff};
    if (config_.ffn.gated) widths.push_back(config_.d_ff);
    const std::vector<Var> parts = split_columns(ctx, qkv_(ctx, h), widths);
    qkv = parts[0];
    f = feed_forward(ctx, parts[1], config_.ffn.gated ? &parts[2] : nullptr);
  } else {
    qkv = qkv_(ctx, h);
    f = ffn_from_input(ctx, norm2_(ctx, x));
  }
  const ops::Branch ffn = branch(f, "ffn");
  return ops::residual(ctx, &x, branch(attn_out_(ctx, attend(qkv)), "attn"), &ffn);
}

Var Block::forward(const Ctx& ctx, const Var& x, const BatchView& batch, const ops::RopeTables& tables) const {
  ASHLAR_SHAPE(x, {batch.rows(), config_.d_model});
  return combine(ctx, x, [&](const Var& qkv) {
    return ops::attention(ctx, rotate(ctx, qkv, batch, tables),
                          {.B = batch.B,
                           .T = batch.T,
                           .H = config_.n_heads,
                           .G = config_.n_kv_heads,
                           .D = config_.head_dim,
                           .scale = config_.attn_scale,
                           .doc_start = batch.doc_start,
                           .dropout = config_.dropout.attn,
                           .dropout_site = dropout_site("scores")});
  });
}

Tensor Block::decode(const Ctx& ctx, const Tensor& x, const BatchView& batch, const ops::RopeTables& tables,
                     KvCache& cache) const {
  ASHLAR_CHECK(ctx.tape == nullptr, "decoding records nothing");
  ASHLAR_CHECK(batch.B == cache.B && cache.length + batch.T <= cache.capacity, "cache of ", cache.capacity,
               " tokens is full");
  const int64_t q_width = config_.q_width(), kv_width = config_.kv_width();
  const auto attend = [&](const Var& raw) {
    const Tensor qkv = rotate(ctx, raw, batch, tables).value;
    // 1. new keys and values go behind the old ones
    for (int64_t b = 0; b < batch.B; ++b) {
      const Tensor rows = qkv.row_range(b * batch.T, batch.T);
      const int64_t at = b * cache.capacity + cache.length;
      ctx.backend.copy({.src = rows.column_range(q_width, kv_width).view(),
                        .dst = cache.k[index_].row_range(at, batch.T).mut_view()},
                       ctx.stream);
      ctx.backend.copy({.src = rows.column_range(q_width + kv_width, kv_width).view(),
                        .dst = cache.v[index_].row_range(at, batch.T).mut_view()},
                       ctx.stream);
    }
    // 2. new queries see all of them; a sample's rows are capacity apart, which the batch stride says
    const auto held = [&](const Tensor& t) {
      ConstView view = t.view();
      view.rows = batch.B * (cache.length + batch.T);
      return view;
    };
    const Tensor out = ctx.empty(ctx.dtype, {batch.rows(), q_width});
    const Tensor lse = ctx.empty(ctx.accumulate(), {batch.B * config_.n_heads * batch.T});
    ctx.backend.attention_forward({.q = qkv.column_range(0, q_width).view(),
                                   .k = held(cache.k[index_]),
                                   .v = held(cache.v[index_]),
                                   .out = out.mut_view(),
                                   .lse = lse.mut_view(),
                                   .shape = {.B = batch.B,
                                             .T_q = batch.T,
                                             .T_kv = cache.length + batch.T,
                                             .H = config_.n_heads,
                                             .G = config_.n_kv_heads,
                                             .D = config_.head_dim,
                                             .q_start = cache.length,
                                             .kv_start = 0,
                                             .q_batch_stride = batch.T * qkv.row_stride(),
                                             .kv_batch_stride = cache.capacity * kv_width,
                                             .scale = config_.attn_scale}},
                                  ctx.stream);
    return Var{.value = out};
  };
  return combine(ctx, Var{.value = x}, attend).value;
}

}  // namespace ashlar::model
