#include "core/ops/residual.h"

#include <optional>

namespace ashlar::ops {

namespace {

ValueInfo info_of(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b) {
  const Shape shape = a.value.shape();
  if (x != nullptr)
    ASHLAR_CHECK(x->shape() == shape, "expected equal shapes, got stream ", x->shape().str(), " and branch ",
                 shape.str());
  if (b != nullptr)
    ASHLAR_CHECK(b->value.shape() == shape, "expected branches of equal shape, got ", b->value.shape().str(), " and ",
                 shape.str());
  if (x != nullptr) place_alike("residual", *x, a.value);
  if (b != nullptr) place_alike("residual", a.value, b->value);
  // Without x, the branches may be partial sums, since scaling and dropout with a fixed mask are linear.
  const Rule alone{x == nullptr ? Placement::kPartialSum : Placement::kInvariant,
                   x == nullptr ? Placement::kPartialSum : Placement::kInvariant};
  return place(ctx, "residual", a.value,
               {alone, {Placement::kInvariant, Placement::kInvariant}, {Placement::kRowsSplit, Placement::kRowsSplit}});
}

DropoutArgs dropout_of(const Ctx& ctx, const Branch* branch) {
  return branch == nullptr ? DropoutArgs{} : ctx.dropout_args(branch->dropout, branch->rng_stream);
}

}  // namespace

Var residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b) {
  if (x == nullptr && b == nullptr && !dropout_of(ctx, &a).active() && a.scale == 1) {
    info_of(ctx, x, a, b);
    return a.value;
  }
  const ResidualCall call = begin_residual(ctx, x, a, b);
  ctx.backend.residual_forward(call.args, ctx.stream);
  return record_residual(ctx, call, x, a, b);
}

ResidualCall begin_residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b) {
  ASHLAR_CHECK(b == nullptr || a.scale == b->scale, "expected equal factors of both branches, got ", a.scale, " and ",
               b == nullptr ? 1 : b->scale);
  const ValueInfo info = info_of(ctx, x, a, b);
  const Tensor y = ctx.empty(ctx.dtype, a.value.shape());
  return {.info = info,
          .y = y,
          .args = {.x = x == nullptr ? ConstView{} : x->value.view(),
                   .delta = a.value.value.view(),
                   .delta2 = b == nullptr ? ConstView{} : b->value.value.view(),
                   .y = y.mut_view(),
                   .dropout = dropout_of(ctx, &a),
                   .dropout2 = dropout_of(ctx, b),
                   .scale = a.scale}};
}

Var record_residual(const Ctx& ctx, const ResidualCall& call, const Var* x, const Branch& a, const Branch* b) {
  const Var out = result(ctx, call.y, call.info);
  if (ctx.tape == nullptr) return out;

  const DropoutArgs drop_a = call.args.dropout, drop_b = call.args.dropout2;
  const std::optional<Var> stream = x == nullptr ? std::nullopt : std::optional<Var>(x->without_value());
  const Var first = a.value.without_value();
  const std::optional<Var> second = b == nullptr ? std::nullopt : std::optional<Var>(b->value.without_value());
  const double scale = call.args.scale;
  ctx.tape->record(out, [ctx, stream, first, second, drop_a, drop_b, scale](Tape& tape, const Tensor& dy) {
    const auto branch = [&](const Var& v, const DropoutArgs& dropout) {
      if (!dropout.active() && scale == 1) return tape.add_grad(v, dy);
      const GradTarget d = tape.target(v);
      if (!d.wanted()) return;
      ctx.backend.dropout_backward(
          {.dy = dy.view(), .ddelta = d.view(), .dropout = dropout, .scale = scale, .mode = d.mode}, ctx.stream);
    };
    branch(first, drop_a);
    if (second) branch(*second, drop_b);
    if (stream) tape.add_grad(*stream, dy);
  });
  return out;
}

}  // namespace ashlar::ops
