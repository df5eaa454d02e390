#include "parallel/model/block.h"

#include <utility>

#include "parallel/tensor/collectives.h"

namespace ashlar::model {

/// One forward: where rows lie, and dropout's rows of the residual stream.
struct Block::Context {
  const Ctx& ctx;
  const Ctx local;  ///< for work on this rank's rows
  const tensor::TensorParallel tp;
  const Rows& rows;
};

Block::Block(nn::ParameterStore& store, const ModelConfig& c, int64_t index, const tensor::TensorParallel& tp)
    : config_(c),
      tp_(tp),
      fused_(c.block.topology == Topology::kParallel && c.block.parallel_norms == 1),
      attn_site_(dropout_site(index, "attn")),
      ffn_site_(dropout_site(index, "ffn")),
      attention_(c, index, tp),
      ffn_(c, index, tp) {
  const std::string name = str_cat("blocks.", index);
  norm1_ = NormLayer(store, name + ".norm1", c, tp);
  if (fused_) {
    std::vector<LinearPart> parts = attention_.input_parts();
    for (LinearPart& part : ffn_.input_parts()) parts.push_back(std::move(part));
    fused_in_ = input_product(store, c, name + ".qkv_ffn_in", parts, tp.size());
  } else {
    attention_.add_input(store);
    norm2_ = NormLayer(store, name + ".norm2", c, tp);
    ffn_.add_input(store);
  }
  attention_.add_output(store);
  ffn_.add_output(store);
}

Var Block::operator()(const Ctx& ctx, const Var& x, const Rows& rows) const {
  const tensor::TensorParallel tp = rows.cache == nullptr ? tp_ : tp_.with_whole_rows();
  ASHLAR_SHAPE(x, {tp.local_rows(rows.batch.rows()), config_.d_model});
  const Context at{.ctx = ctx, .local = tensor::with_local_rows(ctx, x.rows(), tp), .tp = tp, .rows = rows};
  return config_.block.topology == Topology::kSerial ? serial(at, x) : parallel(at, x);
}

Var Block::serial(const Context& at, const Var& x) const {
  const Ctx& ctx = at.ctx;
  const Var h = tensor::enter(ctx, norm1_(ctx, x), at.tp);
  const Var attn = tensor::exit(ctx, attention_(ctx, h, at.rows), at.tp);
  const auto [mid, normed] = norm2_.joined(at.local, x, branch(attn, attn_site_));
  const Var h2 = tensor::enter(ctx, normed, at.tp);
  const Var ffn = tensor::exit(ctx, ffn_(ctx, h2), at.tp);
  return ops::residual(at.local, &mid, branch(ffn, ffn_site_), nullptr);
}

Var Block::parallel(const Context& at, const Var& x) const {
  const Ctx& ctx = at.ctx;
  const Var h = tensor::enter(ctx, norm1_(ctx, x), at.tp);
  Var a, f;
  if (fused_) {
    std::vector<int64_t> widths = ffn_.part_widths();
    widths.insert(widths.begin(), attention_.qkv_width());
    std::vector<Var> parts = split_columns(ctx, fused_in_(ctx, h), widths);
    a = attention_.from_qkv(ctx, std::move(parts[0]), at.rows);
    f = ffn_.from_parts(ctx, std::span(parts).subspan(1));
  } else {
    a = attention_(ctx, h, at.rows);
    f = ffn_(ctx, tensor::enter(ctx, norm2_(ctx, x), at.tp));
  }
  if (at.tp.size() == 1) {  // nothing to sum: one pass for all three
    const ops::Branch whole = branch(tensor::exit(ctx, f, at.tp), ffn_site_);
    return ops::residual(at.local, &x, branch(tensor::exit(ctx, a, at.tp), attn_site_), &whole);
  }
  // Dropout is linear for a given mask, so each branch's partial sum is masked before the one exit.
  const ops::Branch attn = branch(a, attn_site_), ffn = branch(f, ffn_site_);
  const Var both = tensor::exit(ctx, ops::residual(ctx, nullptr, attn, &ffn), at.tp);
  return ops::residual(at.local, &x, {.value = both}, nullptr);
}

}  // namespace ashlar::model
