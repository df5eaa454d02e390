#include "core/ops/linear.h"

namespace ashlar::ops {

void accumulate_weight_grad(const Ctx& ctx, const Tensor& x, const Tensor& dy, Weight& w, Weight* bias) {
  const GradMode w_mode = w.next_mode();
  const GradMode b_mode = next_mode(bias);
  const bool together = w_mode == b_mode;
  if (w_mode != GradMode::kSkip) {
    ctx.backend.linear_backward_weight({.dy = dy.view(),
                                        .x = x.view(),
                                        .dw = w.main_grad.mut_view(),
                                        .dbias = together ? bias->main_grad.mut_view() : MutView{},
                                        .mode = w_mode},
                                       ctx.stream);
  }
  if (b_mode != GradMode::kSkip && !together) {
    ctx.backend.linear_backward_weight(
        {.dy = dy.view(), .x = x.view(), .dw = {}, .dbias = bias->main_grad.mut_view(), .mode = b_mode}, ctx.stream);
  }
}

Var linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias) {
  const LinearCall call = begin_linear(ctx, x, w, bias);
  ctx.backend.linear_forward(call.args, ctx.stream);
  return record_linear(ctx, call, x, w, bias);
}

namespace {

LinearCall begin(const Ctx& ctx, const Var& x, const Weight& w, const Weight* bias, const ValueInfo& info) {
  const int64_t N = x.rows(), K = x.cols(), M = w.shape()[0];
  ASHLAR_SHAPE(w, {M, K});
  const Tensor y = ctx.empty(ctx.dtype, {N, M});
  return {.info = info,
          .y = y,
          .args = {.x = x.value.view(),
                   .w = w.read(ctx.stream).view(),
                   .bias = value_or_none(bias, ctx.stream),
                   .y = y.mut_view()}};
}

}  // namespace

LinearCall begin_linear(const Ctx& ctx, const Var& x, const Weight& w, const Weight* bias) {
  const ValueInfo info =
      place(ctx, "linear", x,
            {{Placement::kPartialGrad, Placement::kColumnsSplit}, {Placement::kColumnsSplit, Placement::kPartialSum}},
            {&w, bias});
  return begin(ctx, x, w, bias, info);
}

Var whole_linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias) {
  const ValueInfo info = place(ctx, "whole_linear", x,
                               {{Placement::kInvariant, Placement::kInvariant},
                                {Placement::kRowsSplit, Placement::kRowsSplit},
                                {Placement::kPartialSum, Placement::kPartialSum}},
                               {&w, bias});
  ASHLAR_CHECK(bias == nullptr || info.placement != Placement::kPartialSum,
               "whole_linear: a bias would be added by every rank");
  const LinearCall call = begin(ctx, x, w, bias, info);
  ctx.backend.linear_forward(call.args, ctx.stream);
  return record_linear(ctx, call, x, w, bias);
}

Var record_linear(const Ctx& ctx, const LinearCall& call, const Var& x, Weight& w, Weight* bias) {
  Var out = result(ctx, call.y, call.info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, input = x.without_value(), saved = Saved(x), &w, bias](Tape& tape, const Tensor& dy) {
    // If x must be gathered from other ranks, the gather starts here, so that it runs while dx is computed.
    std::function<Tensor()> make_x = [saved] { return saved.get(); };
    if (tape.deferred() == nullptr) make_x = saved.start();
    if (const GradTarget dx = tape.target(input); dx.wanted()) {
      ctx.backend.linear_backward_input(
          {.dy = dy.view(), .w = w.read(ctx.stream).view(), .dx = dx.view(), .mode = dx.mode}, ctx.stream);
    }
    tape.add_weight_work([ctx, make_x, dy, &w, bias] { accumulate_weight_grad(ctx, make_x(), dy, w, bias); });
  });
  return out;
}

Tensor logits(const Ctx& ctx, const Tensor& x, const Tensor& w, const Weight* bias) {
  const Tensor y = ctx.empty(ctx.accumulate(), {x.rows(), w.rows()});
  ctx.backend.linear_forward({.x = x.view(), .w = w.view(), .bias = value_or_none(bias, ctx.stream), .y = y.mut_view()},
                             ctx.stream);
  return y;
}

}  // namespace ashlar::ops
