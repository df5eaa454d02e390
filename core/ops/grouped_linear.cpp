#include "core/ops/grouped_linear.h"

namespace ashlar::ops {

namespace {

/// Writes the gradients of `w` and `bias`, each with the GradMode of its own weight.
void accumulate_grouped_grad(const Ctx& ctx, const Tensor& x, const Tensor& dy, const Tensor& offsets, Weight& w,
                             Weight* bias) {
  const GradMode w_mode = w.next_mode(), b_mode = next_mode(bias);
  const auto run = [&](const MutView& dw, const MutView& dbias, GradMode mode) {
    ctx.backend.grouped_linear_backward_weight(
        {.dy = dy.view(), .x = x.view(), .offsets = offsets.view(), .dw = dw, .dbias = dbias, .mode = mode},
        ctx.stream);
  };
  const bool together = w_mode == b_mode && bias != nullptr;
  if (w_mode != GradMode::kSkip) run(w.main_grad.mut_view(), together ? bias->main_grad.mut_view() : MutView{}, w_mode);
  if (b_mode != GradMode::kSkip && !together) run({}, bias->main_grad.mut_view(), b_mode);
}

}  // namespace

Var grouped_linear(const Ctx& ctx, const Var& x, const Tensor& offsets, Weight& w, Weight* bias) {
  const int64_t S = x.rows(), K = x.cols(), G = offsets.size() - 1, M = w.shape()[0] / G;
  ASHLAR_SHAPE(w, {G * M, K});
  const ValueInfo info =
      place(ctx, "grouped_linear", x,
            {{Placement::kPartialGrad, Placement::kColumnsSplit}, {Placement::kColumnsSplit, Placement::kPartialSum}},
            {&w, bias});
  const Tensor y = ctx.empty(ctx.dtype, {S, M});
  ctx.backend.grouped_linear_forward({.x = x.value.view(),
                                      .w = w.read(ctx.stream).view(),
                                      .bias = value_or_none(bias, ctx.stream),
                                      .offsets = offsets.view(),
                                      .y = y.mut_view()},
                                     ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, input = x.without_value(), saved = Saved(x), offsets, &w, bias](Tape& tape,
                                                                                              const Tensor& dy) {
    if (input.requires_grad()) {
      const GradTarget dx = tape.target(input);
      ASHLAR_CHECK(dx.mode == GradMode::kOverwrite, "expected one consumer of the input of a grouped product");
      ctx.backend.grouped_linear_backward_input(
          {.dy = dy.view(), .w = w.read(ctx.stream).view(), .offsets = offsets.view(), .dx = dx.view()}, ctx.stream);
    }
    tape.add_weight_work(
        [ctx, saved, dy, offsets, &w, bias] { accumulate_grouped_grad(ctx, saved.get(), dy, offsets, w, bias); });
  });
  return out;
}

}  // namespace ashlar::ops
