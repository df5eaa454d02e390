#include "core/ops/normalize_rows.h"

namespace ashlar::ops {

NormalizedRows normalized_rows(const Ctx& ctx, const Weight& w) {
  const Tensor& value = w.read(ctx.stream);
  const NormalizedRows normal{.rows = ctx.empty(value.dtype(), value.shape()),
                              .inverse = ctx.empty(ctx.accumulate(), {value.rows()})};
  ctx.backend.normalize_rows({.w = value.view(), .y = normal.rows.mut_view(), .inverse = normal.inverse.mut_view()},
                             ctx.stream);
  return normal;
}

void normalized_rows_backward(const Ctx& ctx, const NormalizedRows& normal, const Tensor& dy, Weight& w) {
  const GradMode mode = w.next_mode();
  if (mode == GradMode::kSkip) return;
  ctx.backend.normalize_rows_backward({.dy = dy.view(),
                                       .w = w.read(ctx.stream).view(),
                                       .inverse = normal.inverse.view(),
                                       .dw = w.main_grad.mut_view(),
                                       .mode = mode},
                                      ctx.stream);
}

}  // namespace ashlar::ops
