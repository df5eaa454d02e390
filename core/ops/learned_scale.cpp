#include "core/ops/learned_scale.h"

namespace ashlar::ops {

Var learned_scale(const Ctx& ctx, const Var& x, Weight& s) {
  ASHLAR_SHAPE(s, {int64_t{1}});
  const ValueInfo info =
      place(ctx, "learned_scale", x,
            {{Placement::kInvariant, Placement::kInvariant}, {Placement::kRowsSplit, Placement::kRowsSplit}}, {&s});
  const Tensor y = ctx.empty(ctx.dtype, x.shape());
  ctx.backend.learned_scale({.x = x.value.view(), .s = s.read(ctx.stream).view(), .y = y.mut_view()}, ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, x, &s](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    const GradMode mode = s.next_mode();
    ctx.backend.learned_scale_backward({.dy = dy.view(),
                                        .x = x.value.view(),
                                        .s = s.read(ctx.stream).view(),
                                        .dx = dx.view(),
                                        .ds = mut_view_or_none(s.main_grad),
                                        .dx_mode = dx.mode,
                                        .param_mode = mode},
                                       ctx.stream);
  });
  return out;
}

}  // namespace ashlar::ops
