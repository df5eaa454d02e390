#include "core/ops/activation.h"

#include <optional>

namespace ashlar::ops {

Var activation(const Ctx& ctx, const Var& x, const Var* up, Activation kind) {
  const int64_t N = x.rows(), F = x.cols();
  if (up != nullptr) ASHLAR_SHAPE(up->value, {N, F});
  const Made made = place(ctx, "activation", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  if (up != nullptr) place_alike("activation", x, *up);
  const std::optional<Var> second = up == nullptr ? std::nullopt : std::optional<Var>(*up);
  const auto forward = [ctx, x, second, kind, N, F] {
    const Tensor y = ctx.empty(ctx.dtype, {N, F});
    ctx.backend.activation_forward(
        {.x = x.value.view(), .up = second ? second->value.view() : ConstView{}, .y = y.mut_view(), .kind = kind},
        ctx.stream);
    return y;
  };
  Var out = result(ctx, forward(), made);
  if (ctx.tape == nullptr) return out;

  if (ctx.recompute == Recompute::kSelective) {
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [forward] { return forward; }});
  }
  ctx.tape->record(out, [ctx, x, second, kind](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    const GradTarget dup = second ? tape.target(*second) : GradTarget{};
    ASHLAR_CHECK(!second || dx.mode == dup.mode, "gate and up have different numbers of consumers");
    ctx.backend.activation_backward({.dy = dy.view(),
                                     .x = x.value.view(),
                                     .up = second ? second->value.view() : ConstView{},
                                     .dx = dx.view(),
                                     .dup = dup.view(),
                                     .mode = dx.mode,
                                     .kind = kind},
                                    ctx.stream);
  });
  return out;
}

}  // namespace ashlar::ops
