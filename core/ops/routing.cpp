#include "core/ops/routing.h"

#include <algorithm>

#include "core/ops/linear.h"

namespace ashlar::ops {

namespace {

/// Returns the tensor in the accumulate dtype: a copy, or the tensor itself if it has that dtype.
Tensor widened(const Ctx& ctx, const Tensor& t) {
  if (t.dtype() == ctx.accumulate()) return t;
  const Tensor wide = ctx.empty(ctx.accumulate(), t.shape());
  ctx.backend.copy({.src = t.view(), .dst = wide.mut_view()}, ctx.stream);
  return wide;
}

/// Throws a Bug if the gradient of a weight is not summed over the tensor group.
void check_partial(const Ctx& ctx, const char* op, const Weight* weight) {
  ASHLAR_CHECK(ctx.tape == nullptr || weight == nullptr || weight->grad_partial, op,
               ": the gradient of a router's weight is not summed over the tensor group");
}

}  // namespace

Var router_logits(const Ctx& ctx, const Var& x, Weight& w, Weight* bias) {
  const int64_t N = x.rows(), C = x.cols(), E = w.shape()[0];
  ASHLAR_SHAPE(w, {E, C});
  const ValueInfo info = place(ctx, "router_logits", x, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  check_partial(ctx, "router_logits", &w);
  check_partial(ctx, "router_logits", bias);
  const Tensor y = ctx.empty(ctx.accumulate(), {N, E});
  ctx.backend.linear_forward({.x = widened(ctx, x.value).view(),
                              .w = widened(ctx, w.read(ctx.stream)).view(),
                              .bias = bias == nullptr ? ConstView{} : widened(ctx, bias->read(ctx.stream)).view(),
                              .y = y.mut_view()},
                             ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, input = x.without_value(), saved = Saved(x), &w, bias](Tape& tape, const Tensor& dy) {
    if (input.requires_grad()) {
      const Tensor wide = ctx.empty(ctx.accumulate(), {dy.rows(), w.shape()[1]});
      ctx.backend.linear_backward_input({.dy = dy.view(),
                                         .w = widened(ctx, w.read(ctx.stream)).view(),
                                         .dx = wide.mut_view(),
                                         .mode = GradMode::kOverwrite},
                                        ctx.stream);
      if (ctx.dtype == ctx.accumulate()) {
        tape.add_grad(input, wide);
      } else {
        const Tensor dx = ctx.empty(ctx.dtype, wide.shape());
        ctx.backend.copy({.src = wide.view(), .dst = dx.mut_view()}, ctx.stream);
        tape.add_grad(input, dx);
      }
    }
    tape.add_weight_work(
        [ctx, saved, dy, &w, bias] { accumulate_weight_grad(ctx, widened(ctx, saved.get()), dy, w, bias); });
  });
  return out;
}

namespace {

/// What backward needs besides the logits and choices.
struct BalanceGradient {
  Tensor coefficients;  ///< [S, E] or [1, E], undefined without a balance loss
  int64_t rows = 1;     ///< rows of the micro-batch that share a row of coefficients
};

BalanceGradient balance_of(const Ctx& ctx, const Tensor& logits, const Tensor& choices, const RouteOptions& o) {
  const BalanceOptions& b = o.balance;
  const int64_t N = logits.rows(), E = logits.cols();
  if (!b.active() || N == 0) return {};
  BalanceGradient gradient{.coefficients = {}, .rows = b.previous_counts ? N : b.sequence_rows};
  const int64_t S = (N + gradient.rows - 1) / gradient.rows;
  const Tensor counts = ctx.empty(DType::kFloat64, {S, E}), scores = ctx.empty(DType::kFloat64, {S, E});
  ctx.backend.router_statistics({.logits = logits.view(),
                                 .choices = choices.view(),
                                 .counts = counts.mut_view(),
                                 .scores = scores.mut_view(),
                                 .lse_squares = b.z,
                                 .entropy = b.entropy,
                                 .all_counts = b.counts,
                                 .score = o.rule.score,
                                 .sequence_rows = gradient.rows},
                                ctx.stream);
  const bool wanted = b.adds_gradient && b.factor != 0;
  if (!wanted && !b.loss) return gradient;
  if (wanted) gradient.coefficients = ctx.empty(ctx.accumulate(), {S, E});
  const Tensor unread = b.loss ? Tensor{} : ctx.empty(DType::kFloat64, Shape{1});
  if (unread) ctx.backend.fill({.dst = unread.mut_view(), .value = 0}, ctx.stream);
  Tensor previous;
  if (b.previous_counts) {
    previous = ctx.empty(DType::kFloat64, {1, E});
    ctx.backend.copy({.src = b.previous_counts, .dst = previous.mut_view()}, ctx.stream);
  }
  ctx.backend.balance_loss({.counts = previous ? previous.view() : counts.view(),
                            .scores = scores.view(),
                            .balance = mut_view_or_none(gradient.coefficients),
                            .loss = b.loss ? b.loss : unread.mut_view(),
                            .scalars = ctx.scalars,
                            .factor = b.factor,
                            .loss_factor = b.loss_factor},
                           ctx.stream);
  return gradient;
}

}  // namespace

Routing route(const Ctx& ctx, const Var& logits, const RouteOptions& o) {
  const int64_t N = logits.rows();
  const ValueInfo info = place(ctx, "route", logits, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  check_partial(ctx, "route", o.expert_scale);
  const Tensor choices = ctx.empty(DType::kInt32, {N, o.top_k}), weights = ctx.empty(ctx.accumulate(), {N, o.top_k});
  ctx.backend.route_forward({.logits = logits.value.view(),
                             .selection_bias = o.selection_bias,
                             .expert_scale = value_or_none(o.expert_scale, ctx.stream),
                             .forced = view_or_none(o.forced),
                             .choices = choices.mut_view(),
                             .weights = weights.mut_view(),
                             .rule = o.rule},
                            ctx.stream);
  const Var out = result(ctx, weights, info);
  if (ctx.tape == nullptr) return {choices, out};

  const BalanceGradient balance = balance_of(ctx, logits.value, choices, o);
  const double z_scale = o.balance.adds_gradient ? 2 * o.balance.z_factor : 0;
  ctx.tape->record(out, [ctx, logits, choices, balance, z_scale, rule = o.rule, scale = o.expert_scale](
                            Tape& tape, const Tensor& dy) {
    const GradTarget target = tape.target(logits);
    ASHLAR_CHECK(target.mode != GradMode::kAccumulate, "expected one consumer of a router's logits");
    const Tensor dlogits = target.wanted() ? target.grad : ctx.empty(ctx.accumulate(), logits.shape());
    ctx.backend.route_backward({.logits = logits.value.view(),
                                .expert_scale = value_or_none(scale, ctx.stream),
                                .choices = choices.view(),
                                .dweights = dy.view(),
                                .balance = view_or_none(balance.coefficients),
                                .dlogits = dlogits.mut_view(),
                                .dexpert_scale = grad_or_none(scale),
                                .scalars = ctx.scalars,
                                .scale_mode = next_mode(scale),
                                .balance_rows = balance.rows,
                                .z_scale = z_scale,
                                .rule = rule},
                               ctx.stream);
  });
  return {choices, out};
}

}  // namespace ashlar::ops
