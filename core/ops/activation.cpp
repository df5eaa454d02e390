#include "core/ops/activation.h"

#include <optional>

#include "core/ops/linear.h"

namespace ashlar::ops {

namespace {

/// The arguments of the kernel call, its output, and the output's placement.
struct ActivationCall {
  ValueInfo info;
  Tensor y;
  ActivationForward args;
};

ActivationCall begin(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& o) {
  const int64_t N = x.rows(), F = x.cols();
  if (up != nullptr) ASHLAR_SHAPE(up->value, {N, F});
  const ValueInfo info = place(ctx, "activation", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  if (up != nullptr) place_alike("activation", x, *up);
  if (o.scalars != nullptr) {
    ASHLAR_SHAPE(*o.scalars, {2});
    ASHLAR_CHECK(ctx.tape == nullptr || o.scalars->grad_partial,
                 "activation: the gradient of scalars that all columns share is not summed over the tensor group");
  }
  const Tensor y = ctx.empty(ctx.dtype, {N, F});
  return {.info = info,
          .y = y,
          .args = {.x = x.value.view(),
                   .up = up == nullptr ? ConstView{} : up->value.view(),
                   .scalars = value_or_none(o.scalars, ctx.stream),
                   .y = y.mut_view(),
                   .kind = o.kind,
                   .clamp = o.clamp,
                   .linear_offset = o.linear_offset}};
}

Var record(const Ctx& ctx, const ActivationCall& call, const Var& x, const Var* up, Weight* scalars) {
  Var out = result(ctx, call.y, call.info);
  if (ctx.tape == nullptr) return out;

  const std::optional<Var> second = up == nullptr ? std::nullopt : std::optional<Var>(*up);
  if (ctx.recompute == Recompute::kSelective) {
    const auto forward = [ctx, args = call.args, x, second, scalars] {
      ActivationForward again = args;
      if (scalars != nullptr) again.scalars = scalars->read(ctx.stream).view();
      const Tensor y = ctx.empty(ctx.dtype, x.shape());
      again.y = y.mut_view();
      ctx.backend.activation_forward(again, ctx.stream);
      return y;
    };
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [forward] { return forward; }});
  }
  const ActivationOptions o = {call.args.kind, call.args.clamp, call.args.linear_offset, scalars};
  std::vector<Var> inputs{x};
  if (second) inputs.push_back(*second);
  ctx.tape->record(out, [ctx, inputs, o](Tape& tape, const Tensor& dy) mutable {
    // Each element of a gradient takes the place of the value that it is computed from.
    const ConstView gate = inputs[0].value.view(), linear = inputs.size() > 1 ? inputs[1].value.view() : ConstView{};
    tape.reuse_values(inputs);
    const GradTarget dx = tape.target(inputs[0]);
    const GradTarget dup = inputs.size() > 1 ? tape.target(inputs[1]) : GradTarget{};
    ASHLAR_CHECK(!linear || dx.mode == dup.mode, "expected the same number of consumers of gate and up");
    const GradMode scalars_mode = o.scalars == nullptr || !dx.wanted() ? GradMode::kSkip : o.scalars->next_mode();
    ctx.backend.activation_backward({.dy = dy.view(),
                                     .x = gate,
                                     .up = linear,
                                     .scalars = value_or_none(o.scalars, ctx.stream),
                                     .dx = dx.view(),
                                     .dup = dup.view(),
                                     .dscalars = grad_or_none(o.scalars),
                                     .mode = dx.mode,
                                     .scalars_mode = scalars_mode,
                                     .kind = o.kind,
                                     .clamp = o.clamp,
                                     .linear_offset = o.linear_offset},
                                    ctx.stream);
  });
  return out;
}

}  // namespace

Var activation(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& options) {
  const ActivationCall call = begin(ctx, x, up, options);
  ctx.backend.activation_forward(call.args, ctx.stream);
  return record(ctx, call, x, up, options.scalars);
}

Var linear_activation(const Ctx& ctx, const Var& x, Weight& w, Weight* bias, Activation kind) {
  const LinearCall product = begin_linear(ctx, x, w, bias);
  const Var pre = record_linear(ctx, product, x, w, bias);
  const ActivationCall call = begin(ctx, pre, nullptr, {.kind = kind});
  ctx.backend.linear_activation({.linear = product.args, .y = call.args.y, .kind = kind}, ctx.stream);
  return record(ctx, call, pre, nullptr, nullptr);
}

}  // namespace ashlar::ops
