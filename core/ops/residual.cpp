#include "core/ops/residual.h"

#include <optional>

namespace ashlar::ops {

Var residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b) {
  const Shape shape = a.value.shape();
  if (x != nullptr) ASHLAR_CHECK(x->shape() == shape, "stream ", x->shape().str(), ", branch ", shape.str());
  if (b != nullptr)
    ASHLAR_CHECK(b->value.shape() == shape, "branch ", b->value.shape().str(), ", branch ", shape.str());
  if (x != nullptr) place_alike("residual", *x, a.value);
  if (b != nullptr) place_alike("residual", a.value, b->value);
  // Branches alone may be partial sums: dropout is linear for a given mask.
  const Rule alone{x == nullptr ? Placement::kPartialSum : Placement::kInvariant,
                   x == nullptr ? Placement::kPartialSum : Placement::kInvariant};
  const Made made =
      place(ctx, "residual", a.value,
            {alone, {Placement::kInvariant, Placement::kInvariant}, {Placement::kRowsSplit, Placement::kRowsSplit}});
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
  const Var out = result(ctx, y, made);
  if (ctx.tape == nullptr) return out;

  const std::optional<Var> stream = x == nullptr ? std::nullopt : std::optional<Var>(x->without_value());
  const Var first = a.value.without_value();
  const std::optional<Var> second = b == nullptr ? std::nullopt : std::optional<Var>(b->value.without_value());
  ctx.tape->record(out, [ctx, stream, first, second, drop_a, drop_b](Tape& tape, const Tensor& dy) {
    const auto branch = [&](const Var& v, const DropoutArgs& dropout) {
      if (!dropout.active()) return tape.add_grad(v, dy);
      const GradTarget d = tape.target(v);
      if (d.wanted())
        ctx.backend.dropout_backward({.dy = dy.view(), .ddelta = d.view(), .dropout = dropout, .mode = d.mode},
                                     ctx.stream);
    };
    branch(first, drop_a);
    if (second) branch(*second, drop_b);
    if (stream) tape.add_grad(*stream, dy);
  });
  return out;
}

}  // namespace ashlar::ops
