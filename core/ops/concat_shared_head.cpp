#include "core/ops/concat_shared_head.h"

namespace ashlar::ops {

Var concat_shared_head(const Ctx& ctx, const Var& shared, const Var& own, int64_t heads) {
  const int64_t N = shared.rows();
  ASHLAR_SHAPE(own, {N, own.cols()});
  place(ctx, "concat_shared_head", shared, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  const ValueInfo info = place(ctx, "concat_shared_head", own, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  const Tensor y = ctx.empty(ctx.dtype, {N, heads * shared.cols() + own.cols()});
  ctx.backend.concat_shared_head(
      {.shared = shared.value.view(), .own = own.value.view(), .y = y.mut_view(), .heads = heads}, ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(
      out, [ctx, shared = shared.without_value(), own = own.without_value(), heads](Tape& tape, const Tensor& dy) {
        const GradTarget dshared = tape.target(shared), down = tape.target(own);
        ASHLAR_CHECK(dshared.mode == down.mode, "expected the same number of consumers of shared and own columns");
        ctx.backend.concat_shared_head_backward(
            {.dy = dy.view(), .dshared = dshared.view(), .down = down.view(), .heads = heads, .mode = dshared.mode},
            ctx.stream);
      });
  return out;
}

}  // namespace ashlar::ops
