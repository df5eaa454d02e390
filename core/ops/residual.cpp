#include "core/ops/residual.h"

#include <optional>

namespace ashlar::ops {

Var residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b) {
  const Shape shape = a.value.shape();
  if (x != nullptr) ASHLAR_CHECK(x->shape() == shape, "stream ", x->shape().str(), ", branch ", shape.str());
  if (b != nullptr)
    ASHLAR_CHECK(b->value.shape() == shape, "branch ", b->value.shape().str(), ", branch ", shape.str());
  const DropoutArgs drop_a = ctx.dropout_args(a.dropout, a.site);
  const DropoutArgs drop_b = b == nullptr ? DropoutArgs{} : ctx.dropout_args(b->dropout, b->site);
  if (x == nullptr && b == nullptr && !drop_a.active()) return a.value;

  const Tensor y = ctx.empty(ctx.dtype, shape);
  ctx.backend.residual_forward({.x = x == nullptr ? ConstView{} : x->value.view(),
                                .delta = a.value.value.view(),
                                .delta2 = b == nullptr ? ConstView{} : b->value.value.view(),
                                .y = y.mut_view(),
                                .dropout = drop_a,
                                .dropout2 = drop_b},
                               ctx.stream);
  if (ctx.tape == nullptr) return {.value = y};

  const auto without_value = [](Var v) {
    v.value = {};
    v.rematerialize = nullptr;
    return v;
  };
  const Var out = ctx.tape->output(y);
  const std::optional<Var> stream = x == nullptr ? std::nullopt : std::optional<Var>(without_value(*x));
  const Var first = without_value(a.value);
  const std::optional<Var> second = b == nullptr ? std::nullopt : std::optional<Var>(without_value(b->value));
  ctx.tape->record("residual", out,
                   [ctx, stream, first, second, drop_a, drop_b, slot = out.slot](Tape& tape, WeightWork*) {
                     const Tensor dy = tape.take_grad({.value = {}, .slot = slot});
                     const auto branch = [&](const Var& v, const DropoutArgs& dropout) {
                       if (!dropout.active()) return tape.add_grad(v, dy);
                       const GradTarget d = tape.target(v);
                       if (d.wanted())
                         ctx.backend.dropout_backward(
                             {.dy = dy.view(), .ddelta = d.view(), .dropout = dropout, .mode = d.mode}, ctx.stream);
                     };
                     branch(first, drop_a);
                     if (second) branch(*second, drop_b);
                     if (stream) tape.add_grad(*stream, dy);
                   });
  return out;
}

}  // namespace ashlar::ops
