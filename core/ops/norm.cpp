#include "core/ops/norm.h"

namespace ashlar::ops {

namespace {

ConstView value_view(const Ctx& ctx, const Weight* w) {
  return w == nullptr ? ConstView{} : w->read(ctx.stream).view();
}
MutView grad_view(const Weight* w) { return w == nullptr ? MutView{} : mut_view_or_none(w->main_grad); }

}  // namespace

Var norm(const Ctx& ctx, const Var& x, Weight* gamma, Weight* beta, const NormVariant& variant) {
  const int64_t N = x.rows(), C = x.cols();
  if (gamma != nullptr) ASHLAR_SHAPE(*gamma, {C});
  if (beta != nullptr) ASHLAR_SHAPE(*beta, {C});
  const Made made = place(
      ctx, "norm", x, {{Placement::kInvariant, Placement::kInvariant}, {Placement::kRowsSplit, Placement::kRowsSplit}},
      {gamma, beta});
  const bool centred = variant.type == NormType::kLayerNorm;

  const Tensor mean = centred ? ctx.empty(ctx.accumulate(), {N}) : Tensor();
  const Tensor rstd = ctx.empty(ctx.accumulate(), {N});
  const auto forward = [ctx, input = x.value, gamma, beta, mean, rstd, variant, N, C] {
    const Tensor y = ctx.empty(ctx.dtype, {N, C});
    ctx.backend.norm_forward({.x = input.view(),
                              .gamma = value_view(ctx, gamma),
                              .beta = value_view(ctx, beta),
                              .y = y.mut_view(),
                              .mean = mut_view_or_none(mean),
                              .rstd = rstd.mut_view(),
                              .variant = variant},
                             ctx.stream);
    return y;
  };
  Var out = result(ctx, forward(), made);
  if (ctx.tape == nullptr) return out;

  if (ctx.recompute == Recompute::kSelective) {
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [forward] { return forward; }});
  }
  ctx.tape->record(out, [ctx, x, gamma, beta, mean, rstd, variant](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    const GradMode gamma_mode = gamma == nullptr ? GradMode::kSkip : gamma->next_mode();
    const GradMode beta_mode = beta == nullptr ? GradMode::kSkip : beta->next_mode();
    ASHLAR_CHECK(beta_mode == GradMode::kSkip || beta_mode == gamma_mode, "gain and bias of a norm are used together");
    ctx.backend.norm_backward({.dy = dy.view(),
                               .x = x.value.view(),
                               .gamma = value_view(ctx, gamma),
                               .mean = view_or_none(mean),
                               .rstd = rstd.view(),
                               .dx = dx.view(),
                               .dgamma = grad_view(gamma),
                               .dbeta = grad_view(beta),
                               .dx_mode = dx.mode,
                               .param_mode = gamma_mode,
                               .variant = variant},
                              ctx.stream);
  });
  return out;
}

}  // namespace ashlar::ops
