#include "parallel/model/block.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/ops/learned_scale.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

/// State of one forward pass: the layout of rows, and the context for dropout on rows of the residual stream.
struct Block::Context {
  const Ctx& ctx;
  const Ctx local;  ///< context of operations on this rank's rows
  const tensor::TensorParallel tp;
  const Rows& rows;
};

Block::Block(nn::ParameterStore& store, const ModelConfig& c, int64_t index, const tensor::TensorParallel& tp)
    : config_(c), tp_(tp), branches_(make_branches(c, index, tp)) {
  const bool one_norm = c.block.topology == Topology::kParallel && c.block.parallel_norms == 1;
  fused_ = one_norm && std::none_of(branches_.begin(), branches_.end(),
                                    [](const auto& branch) { return branch->input_parts().empty(); });
  const std::string name = str_cat("blocks.", index);
  for (size_t i = 0; i < branches_.size(); ++i) rng_streams_[i] = dropout_rng_stream(index, branches_[i]->name());
  const auto norm = [&](const char* which) { return NormLayer(store, name + which, c, tp); };
  const bool output = c.norm.placement == NormPlacement::kOutput;
  if (!output) norm1_ = norm(".norm1");
  if (fused_) {
    std::vector<LinearPart> parts;
    for (const auto& branch : branches_)
      for (LinearPart& part : branch->input_parts()) parts.push_back(std::move(part));
    fused_in_ = input_product(store, c, name + ".qkv_ffn_in", parts, tp.size());
  } else {
    branches_[0]->add_inputs(store);
    if (!output && !one_norm) norm2_ = norm(".norm2");
    branches_[1]->add_inputs(store);
  }
  if (output || c.norm.placement == NormPlacement::kSandwich) {
    norm1_out_ = norm(".norm1_out");
    norm2_out_ = norm(".norm2_out");
  }
  for (const auto& branch : branches_) branch->add_outputs(store);
  if (c.block.out_scalar) out_scalar_ = stream_vector(store, name + ".out_scalar", 1, {.value = 1, .rule = "1"}, tp);
}

void Block::add_to_cache(const Ctx& ctx, KvCache& cache) const {
  for (const auto& branch : branches_) branch->add_to_cache(ctx, cache);
}

namespace {

Var sum_of(const Ctx& local, const StreamSum& x) {
  if (x.branches.empty()) return x.x;
  return ops::residual(local, &x.x, x.branches[0], x.branches.size() > 1 ? &x.branches[1] : nullptr);
}

}  // namespace

Block::Context Block::context(const Ctx& ctx, const Var& x, const Rows& rows) const {
  const tensor::TensorParallel tp = rows.cache == nullptr ? tp_ : tp_.with_whole_rows();
  ASHLAR_SHAPE(x, {tp.local_rows(rows.batch.rows()), config_.d_model});
  return {.ctx = ctx, .local = tensor::with_local_rows(ctx, x.rows(), tp), .tp = tp, .rows = rows};
}

StreamSum Block::operator()(const Ctx& ctx, StreamSum x, const Rows& rows) const {
  const Context at = context(ctx, x.x, rows);
  StreamSum out = composed(at, std::move(x));
  if (out_scalar_ == nullptr) return out;
  const Var sum = sum_of(at.local, std::exchange(out, {}));
  return {.x = ops::learned_scale(ctx, sum, out_scalar_->weight)};
}

Var Block::total(const Ctx& ctx, const StreamSum& x, const Rows& rows) const {
  return sum_of(context(ctx, x.x, rows).local, x);
}

StreamSum Block::composed(const Context& at, StreamSum in) const {
  if (config_.block.topology == Topology::kParallel) return parallel(at, std::move(in));
  if (config_.norm.placement == NormPlacement::kPost) return serial_post(at, std::move(in));
  return serial(at, std::move(in));
}

ops::Normed Block::first_norm(const Context& at, StreamSum in) const {
  if (in.branches.empty()) return {.stream = in.x, .normed = norm1_(at.ctx, in.x)};
  return norm1_.joined(at.local, in.x, in.branches[0], in.branches.size() > 1 ? &in.branches[1] : nullptr);
}

Var Block::part(const Context& at, size_t branch, const Var& x, const Var& stream) const {
  Rows rows = at.rows;
  rows.stream = &stream;
  return branches_[branch]->forward(at.ctx, x, rows, at.tp);
}

Var Block::whole(const Context& at, size_t branch, const Var& x, const Var& stream) const {
  const Var y = part(at, branch, x, stream);
  return branches_[branch]->reduces() ? y : tensor::exit(at.ctx, y, at.tp);
}

ops::Branch Block::joining(size_t branch, const Var& v) const {
  return {.value = v,
          .dropout = config_.dropout.resid,
          .rng_stream = rng_streams_[branch],
          .scale = config_.block.residual_multiplier};
}

StreamSum Block::serial(const Context& at, StreamSum in) const {
  const Ctx& ctx = at.ctx;
  const bool before = config_.norm.placement != NormPlacement::kOutput;
  const bool after = config_.norm.placement != NormPlacement::kPre;
  ops::Normed start;
  if (before) {
    start = first_norm(at, std::move(in));
  } else {
    start.stream = start.normed = sum_of(at.local, in);
    in = {};
  }
  const Var x = std::move(start.stream), a = whole(at, 0, std::exchange(start.normed, {}), x);
  const ops::Branch first = joining(0, after ? norm1_out_(ctx, a) : a);
  ops::Normed mid;
  if (before) {
    mid = norm2_.joined(at.local, x, first);
  } else {
    mid.stream = mid.normed = ops::residual(at.local, &x, first, nullptr);
  }
  const Var f = whole(at, 1, mid.normed, mid.stream);
  return {.x = mid.stream, .branches = {joining(1, after ? norm2_out_(ctx, f) : f)}};
}

StreamSum Block::serial_post(const Context& at, StreamSum in) const {
  const Var x = sum_of(at.local, in);
  const Var mid = norm1_.joined(at.local, x, joining(0, whole(at, 0, x, x))).normed;
  return {.x = norm2_.joined(at.local, mid, joining(1, whole(at, 1, mid, mid))).normed};
}

StreamSum Block::parallel(const Context& at, StreamSum in) const {
  const Ctx& ctx = at.ctx;
  const auto [x, normed] = first_norm(at, std::move(in));
  Var a, f;
  if (fused_) {
    const Var h = tensor::enter(ctx, normed, at.tp);
    std::vector<int64_t> widths = branches_[0]->input_widths();
    const size_t first = widths.size();
    for (const int64_t width : branches_[1]->input_widths()) widths.push_back(width);
    std::vector<Var> inputs = split_columns(ctx, fused_in_(ctx, h), widths);
    a = branches_[0]->forward_from(ctx, std::span(inputs).first(first), at.rows);
    f = branches_[1]->forward_from(ctx, std::span(inputs).subspan(first), at.rows);
  } else {
    a = part(at, 0, normed, x);
    f = part(at, 1, config_.block.parallel_norms == 1 ? normed : norm2_(ctx, x), x);
  }
  if (at.tp.size() == 1)  // no reduction needed: one fused pass
    return {.x = x, .branches = {joining(0, tensor::exit(ctx, a, at.tp)), joining(1, tensor::exit(ctx, f, at.tp))}};
  // Dropout with a fixed mask is linear. So the partial sum of each branch is masked, and both are reduced together.
  const ops::Branch second = joining(1, f);
  const Var both = tensor::exit(ctx, ops::residual(ctx, nullptr, joining(0, a), &second), at.tp);
  return {.x = x, .branches = {{.value = both}}};
}

}  // namespace ashlar::model
