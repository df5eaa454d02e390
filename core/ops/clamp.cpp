#include "core/ops/clamp.h"

namespace ashlar::ops {

Var clamp(const Ctx& ctx, const Var& x, double limit) {
  const ValueInfo info = place(ctx, "clamp", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  const Tensor y = ctx.empty(ctx.dtype, x.shape());
  ctx.backend.clamp({.x = x.value.view(), .y = y.mut_view(), .limit = limit}, ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, x, limit](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    if (!dx.wanted()) return;
    ctx.backend.clamp_backward({.dy = dy.view(), .x = x.value.view(), .dx = dx.view(), .limit = limit, .mode = dx.mode},
                               ctx.stream);
  });
  return out;
}

}  // namespace ashlar::ops
