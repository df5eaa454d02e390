#include "parallel/model/block.h"

#include "core/ops/activation.h"
#include "core/ops/attention.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

Block::Block(nn::ParameterStore& store, const ModelConfig& c, int64_t index, const tensor::TensorParallel& tp)
    : config_(c),
      tp_(tp),
      slices_(tensor::slices_of(c, tp.size(), tp.rank())),
      index_(index),
      name_(str_cat("blocks.", index)),
      fused_(c.block.topology == Topology::kParallel && c.block.parallel_norms == 1) {
  const nn::Extent C = nn::Extent::whole(c.d_model), F = slices_.ffn;
  const nn::Extent q = slices_.heads.times(c.head_dim), kv = slices_.kv_heads.times(c.head_dim);
  const std::string attn = name_ + ".attn.", ffn = name_ + ".ffn.";
  const auto into = [&](const std::string& part, const nn::Extent& rows, bool bias) {
    return LinearPart{.name = part, .rows = rows, .bias = bias, .init = matrix_init(c, rows.global, C.global, false)};
  };
  const auto shared = [&](LinearPart part) {  // a KV head that several ranks may hold
    part.grad_partial_axes = slices_.kv_grad_partial_axes;
    part.main_replica = slices_.kv_main_replica;
    return part;
  };
  norm1_ = NormLayer(store, name_ + ".norm1", c, tp);
  std::vector<LinearPart> qkv{into(attn + "q", q, c.bias.qkv), shared(into(attn + "k", kv, c.bias.qkv)),
                              shared(into(attn + "v", kv, c.bias.qkv))};
  std::vector<LinearPart> wide;
  if (c.ffn.gated) wide.push_back(into(ffn + "gate", F, c.bias.ffn));
  wide.push_back(into(ffn + "up", F, c.bias.ffn));
  if (fused_) {
    qkv.insert(qkv.end(), wide.begin(), wide.end());
    qkv_ = LinearLayer(store, name_ + ".qkv_ffn_in", C, qkv);
  } else {
    qkv_ = LinearLayer(store, attn + "qkv", C, qkv);
    norm2_ = NormLayer(store, name_ + ".norm2", c, tp);
    ffn_in_ = LinearLayer(store, ffn + "in", C, wide);
  }
  const auto out_of = [&](const std::string& part, const nn::Extent& cols, bool bias) {
    // Partial sums: the first rank's has the bias.
    return LinearLayer(store, part, cols,
                       {{.name = part,
                         .rows = C,
                         .bias = bias && tp.rank() == 0,
                         .init = matrix_init(c, C.global, cols.global, true)}});
  };
  attn_out_ = out_of(attn + "out", q, c.bias.attn_out);
  ffn_down_ = out_of(ffn + "down", F, c.bias.ffn);
}

uint32_t Block::dropout_site(const char* where) const {
  return static_cast<uint32_t>(site_of(str_cat(name_, ".dropout.", where)));
}

Var Block::rotate(const Ctx& ctx, const Var& qkv, const BatchView& batch, const ops::RopeTables& tables) const {
  if (config_.pos.type != PosType::kRope) return qkv;
  return ops::rope(ctx, qkv, batch.positions, tables,
                   {.heads = slices_.heads.size + 2 * slices_.kv_heads.size,
                    .rotated_heads = slices_.heads.size + slices_.kv_heads.size,
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
  const std::vector<Var> parts = split_columns(ctx, in, {slices_.ffn.size, slices_.ffn.size});
  return feed_forward(ctx, parts[0], &parts[1]);
}

Var Block::combine(const Ctx& ctx, const tensor::TensorParallel& tp, const Var& x, const Attend& attend) const {
  const Ctx rows = tensor::with_local_rows(ctx, x.rows(), tp);
  const auto branch = [&](const Var& v, const char* where) {
    return ops::Branch{.value = v, .dropout = config_.dropout.resid, .site = dropout_site(where)};
  };
  const Var h = tensor::enter(ctx, norm1_(ctx, x), tp);
  if (config_.block.topology == Topology::kSerial) {
    const Var attn = tensor::exit(ctx, attn_out_(ctx, attend(qkv_(ctx, h))), tp);
    const Var mid = ops::residual(rows, &x, branch(attn, "attn"), nullptr);
    const Var h2 = tensor::enter(ctx, norm2_(ctx, mid), tp);
    const Var ffn = tensor::exit(ctx, ffn_from_input(ctx, h2), tp);
    return ops::residual(rows, &mid, branch(ffn, "ffn"), nullptr);
  }
  Var qkv;
  Var f;
  if (fused_) {
    std::vector<int64_t> widths{(slices_.heads.size + 2 * slices_.kv_heads.size) * config_.head_dim, slices_.ffn.size};
    if (config_.ffn.gated) widths.push_back(slices_.ffn.size);
    const std::vector<Var> parts = split_columns(ctx, qkv_(ctx, h), widths);
    qkv = parts[0];
    f = feed_forward(ctx, parts[1], config_.ffn.gated ? &parts[2] : nullptr);
  } else {
    qkv = qkv_(ctx, h);
    f = ffn_from_input(ctx, tensor::enter(ctx, norm2_(ctx, x), tp));
  }
  const ops::Branch attn = branch(attn_out_(ctx, attend(qkv)), "attn"), ffn = branch(f, "ffn");
  if (tp.size() == 1) return ops::residual(rows, &x, attn, &ffn);
  // Dropout is linear for a given mask, so each branch's partial sum is masked before the one exit.
  const Var both = tensor::exit(ctx, ops::residual(ctx, nullptr, attn, &ffn), tp);
  return ops::residual(rows, &x, {.value = both}, nullptr);
}

Var Block::forward(const Ctx& ctx, const Var& x, const BatchView& batch, const ops::RopeTables& tables) const {
  ASHLAR_SHAPE(x, {tp_.local_rows(batch.rows()), config_.d_model});
  return combine(ctx, tp_, x, [&](const Var& qkv) {
    return ops::attention(ctx, rotate(ctx, qkv, batch, tables),
                          {.B = batch.B,
                           .T = batch.T,
                           .H = slices_.heads.size,
                           .G = slices_.kv_heads.size,
                           .D = config_.head_dim,
                           .head0 = slices_.heads.begin,
                           .global_heads = config_.n_heads,
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
  const int64_t q_width = slices_.heads.size * config_.head_dim, kv_width = slices_.kv_heads.size * config_.head_dim;
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
    const Tensor lse = ctx.empty(ctx.accumulate(), {batch.B * slices_.heads.size * batch.T});
    ctx.backend.attention_forward({.q = qkv.column_range(0, q_width).view(),
                                   .k = held(cache.k[index_]),
                                   .v = held(cache.v[index_]),
                                   .out = out.mut_view(),
                                   .lse = lse.mut_view(),
                                   .shape = {.B = batch.B,
                                             .T_q = batch.T,
                                             .T_kv = cache.length + batch.T,
                                             .H = slices_.heads.size,
                                             .G = slices_.kv_heads.size,
                                             .D = config_.head_dim,
                                             .q_start = cache.length,
                                             .kv_start = 0,
                                             .q_batch_stride = batch.T * qkv.row_stride(),
                                             .kv_batch_stride = cache.capacity * kv_width,
                                             .scale = config_.attn_scale}},
                                  ctx.stream);
    return Var{.value = out};
  };
  return combine(ctx, tp_.with_whole_rows(), Var{.value = x}, attend).value;
}

}  // namespace ashlar::model
