#include "core/ops/norm.h"

namespace ashlar::ops {

namespace {

/// The arguments of the kernel call, its outputs, and the output's placement.
struct NormCall {
  ValueInfo info;
  Tensor y, mean, rstd;
  NormForward args;
};

ValueInfo placed(const Ctx& ctx, const Var& x, const NormWeights& w) {
  return place(ctx, "norm", x,
               {{Placement::kInvariant, Placement::kInvariant}, {Placement::kRowsSplit, Placement::kRowsSplit}},
               {w.gamma, w.beta});
}

NormCall begin(const Ctx& ctx, const Var& x, const NormWeights& w, const NormVariant& variant, const ValueInfo& info) {
  const int64_t N = x.rows(), C = x.cols();
  if (w.gamma != nullptr) ASHLAR_SHAPE(*w.gamma, {C});
  if (w.beta != nullptr) ASHLAR_SHAPE(*w.beta, {C});
  const bool centred = variant.type == NormType::kLayerNorm;
  const Tensor mean = centred ? ctx.empty(ctx.accumulate(), {N}) : Tensor();
  const Tensor rstd = ctx.empty(ctx.accumulate(), {N});
  const Tensor y = ctx.empty(ctx.dtype, {N, C});
  return {.info = info,
          .y = y,
          .mean = mean,
          .rstd = rstd,
          .args = {.x = x.value.view(),
                   .gamma = value_or_none(w.gamma, ctx.stream),
                   .beta = value_or_none(w.beta, ctx.stream),
                   .y = y.mut_view(),
                   .mean = mut_view_or_none(mean),
                   .rstd = rstd.mut_view(),
                   .variant = variant}};
}

Var record(const Ctx& ctx, const NormCall& call, const Var& x, const NormWeights& weights) {
  Var out = result(ctx, call.y, call.info);
  if (ctx.tape == nullptr) return out;

  const auto [gamma, beta] = weights;
  const Tensor mean = call.mean, rstd = call.rstd;
  const NormVariant variant = call.args.variant;
  if (ctx.recompute == Recompute::kSelective) {
    const auto forward = [ctx, args = call.args, input = x.value, mean, rstd] {
      NormForward again = args;
      const Tensor y = ctx.empty(ctx.dtype, input.shape());
      again.y = y.mut_view();
      ctx.backend.norm_forward(again, ctx.stream);
      return y;
    };
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [forward] { return forward; }});
  }
  ctx.tape->record(out, [ctx, x, gamma = gamma, beta = beta, mean, rstd, variant](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    const GradMode gamma_mode = next_mode(gamma);
    const GradMode beta_mode = next_mode(beta);
    ASHLAR_CHECK(beta_mode == GradMode::kSkip || beta_mode == gamma_mode,
                 "expected gain and bias of a norm to be used together");
    ctx.backend.norm_backward({.dy = dy.view(),
                               .x = x.value.view(),
                               .gamma = value_or_none(gamma, ctx.stream),
                               .mean = view_or_none(mean),
                               .rstd = rstd.view(),
                               .dx = dx.view(),
                               .dgamma = grad_or_none(gamma),
                               .dbeta = grad_or_none(beta),
                               .dx_mode = dx.mode,
                               .param_mode = gamma_mode,
                               .variant = variant},
                              ctx.stream);
  });
  return out;
}

}  // namespace

Var norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant) {
  const NormCall call = begin(ctx, x, weights, variant, placed(ctx, x, weights));
  ctx.backend.norm_forward(call.args, ctx.stream);
  return record(ctx, call, x, weights);
}

Var replicated_norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant) {
  const ValueInfo info = place(ctx, "replicated_norm", x, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  for (const Weight* weight : {weights.gamma, weights.beta}) {
    ASHLAR_CHECK(ctx.tape == nullptr || weight == nullptr || weight->grad_partial,
                 "replicated_norm: expected a weight whose gradient is summed over the tensor group, got one that is ",
                 "not; add Axis::kTensor to grad_summed_over where its sharded tensor is created");
  }
  const NormCall call = begin(ctx, x, weights, variant, info);
  ctx.backend.norm_forward(call.args, ctx.stream);
  return record(ctx, call, x, weights);
}

Normed residual_norm(const Ctx& ctx, const Var& x, const Branch& a, const Branch* b, const NormWeights& weights,
                     const NormVariant& variant) {
  const ResidualCall add = begin_residual(ctx, &x, a, b);
  const Var stream = record_residual(ctx, add, &x, a, b);
  const NormCall call = begin(ctx, stream, weights, variant, placed(ctx, stream, weights));
  ctx.backend.residual_norm_forward({.residual = add.args, .norm = call.args}, ctx.stream);
  return {.stream = stream, .normed = record(ctx, call, stream, weights)};
}

}  // namespace ashlar::ops
