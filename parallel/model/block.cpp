#include "parallel/model/block.h"

#include <utility>

#include "core/ops/learned_scale.h"
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
      fused_(c.block.topology == Topology::kParallel && c.block.parallel_norms == 1 &&
             c.attn.kind == AttentionKind::kStandard),
      attn_site_(dropout_site(index, "attn")),
      ffn_site_(dropout_site(index, "ffn")),
      ffn_(c, index, tp) {
  if (c.attn.kind == AttentionKind::kMla) {
    latent_.emplace(c, index, tp);
  } else {
    attention_.emplace(c, index, tp);
  }
  const std::string name = str_cat("blocks.", index);
  const auto norm = [&](const char* which) { return NormLayer(store, name + which, c, tp); };
  const bool output = c.norm.placement == NormPlacement::kOutput;
  if (!output) norm1_ = norm(".norm1");
  if (fused_) {
    std::vector<LinearPart> parts = attention_->input_parts();
    for (LinearPart& part : ffn_.input_parts()) parts.push_back(std::move(part));
    fused_in_ = input_product(store, c, name + ".qkv_ffn_in", parts, tp.size());
  } else {
    latent_ ? latent_->add_input(store) : attention_->add_input(store);
    const bool one_norm = c.block.topology == Topology::kParallel && c.block.parallel_norms == 1;
    if (!output && !one_norm) norm2_ = norm(".norm2");
    ffn_.add_input(store);
  }
  if (output || c.norm.placement == NormPlacement::kSandwich) {
    norm1_out_ = norm(".norm1_out");
    norm2_out_ = norm(".norm2_out");
  }
  latent_ ? latent_->add_output(store) : attention_->add_output(store);
  ffn_.add_output(store);
  if (c.block.out_scalar) out_scalar_ = stream_vector(store, name + ".out_scalar", 1, {.value = 1, .rule = "1"}, tp);
}

Var Block::operator()(const Ctx& ctx, const Var& x, const Rows& rows) const {
  const tensor::TensorParallel tp = rows.cache == nullptr ? tp_ : tp_.with_whole_rows();
  ASHLAR_SHAPE(x, {tp.local_rows(rows.batch.rows()), config_.d_model});
  const Context at{.ctx = ctx, .local = tensor::with_local_rows(ctx, x.rows(), tp), .tp = tp, .rows = rows};
  const Var out = composed(at, x);
  return out_scalar_ == nullptr ? out : ops::learned_scale(ctx, out, out_scalar_->weight);
}

Var Block::composed(const Context& at, const Var& x) const {
  if (config_.block.topology == Topology::kParallel) return parallel(at, x);
  return config_.norm.placement == NormPlacement::kPost ? serial_post(at, x) : serial(at, x);
}

Var Block::attended_part(const Context& at, const Var& x) const {
  if (latent_) return (*latent_)(at.ctx, x, at.rows, at.tp);
  return (*attention_)(at.ctx, tensor::enter(at.ctx, x, at.tp), at.rows);
}

Var Block::attend(const Context& at, const Var& x) const { return tensor::exit(at.ctx, attended_part(at, x), at.tp); }

Var Block::feed(const Context& at, const Var& x) const {
  return tensor::exit(at.ctx, ffn_(at.ctx, tensor::enter(at.ctx, x, at.tp)), at.tp);
}

Var Block::serial(const Context& at, const Var& x) const {
  const Ctx& ctx = at.ctx;
  const bool before = config_.norm.placement != NormPlacement::kOutput;
  const bool after = config_.norm.placement != NormPlacement::kPre;
  const Var attn = attend(at, before ? norm1_(ctx, x) : x);
  const ops::Branch first = branch(after ? norm1_out_(ctx, attn) : attn, attn_site_);
  ops::Normed mid;
  if (before) {
    mid = norm2_.joined(at.local, x, first);
  } else {
    mid.stream = mid.normed = ops::residual(at.local, &x, first, nullptr);
  }
  const Var ffn = feed(at, mid.normed);
  return ops::residual(at.local, &mid.stream, branch(after ? norm2_out_(ctx, ffn) : ffn, ffn_site_), nullptr);
}

Var Block::serial_post(const Context& at, const Var& x) const {
  const Var mid = norm1_.joined(at.local, x, branch(attend(at, x), attn_site_)).normed;
  return norm2_.joined(at.local, mid, branch(feed(at, mid), ffn_site_)).normed;
}

Var Block::parallel(const Context& at, const Var& x) const {
  const Ctx& ctx = at.ctx;
  const Var normed = norm1_(ctx, x);
  Var a, f;
  if (fused_) {
    const Var h = tensor::enter(ctx, normed, at.tp);
    std::vector<int64_t> widths = ffn_.part_widths();
    widths.insert(widths.begin(), attention_->qkv_width());
    std::vector<Var> parts = split_columns(ctx, fused_in_(ctx, h), widths);
    a = attention_->from_qkv(ctx, std::move(parts[0]), at.rows);
    f = ffn_.from_parts(ctx, std::span(parts).subspan(1));
  } else {
    a = attended_part(at, normed);
    const Var second = config_.block.parallel_norms == 1 ? normed : norm2_(ctx, x);
    f = ffn_(ctx, tensor::enter(ctx, second, at.tp));
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
