#include "core/ops/activation.h"

#include <optional>

#include "core/ops/linear.h"

namespace ashlar::ops {

namespace {

/// The call to make, with what it writes.
struct ActivationCall {
  Made made;
  Tensor y;
  ActivationForward args;
};

ActivationCall begin(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& o) {
  const int64_t N = x.rows(), F = x.cols();
  if (up != nullptr) ASHLAR_SHAPE(up->value, {N, F});
  const Made made = place(ctx, "activation", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  if (up != nullptr) place_alike("activation", x, *up);
  const Tensor y = ctx.empty(ctx.dtype, {N, F});
  return {.made = made,
          .y = y,
          .args = {.x = x.value.view(),
                   .up = up == nullptr ? ConstView{} : up->value.view(),
                   .y = y.mut_view(),
                   .kind = o.kind,
                   .clamp = o.clamp,
                   .linear_offset = o.linear_offset}};
}

Var record(const Ctx& ctx, const ActivationCall& call, const Var& x, const Var* up) {
  Var out = result(ctx, call.y, call.made);
  if (ctx.tape == nullptr) return out;

  const std::optional<Var> second = up == nullptr ? std::nullopt : std::optional<Var>(*up);
  if (ctx.recompute == Recompute::kSelective) {
    const auto forward = [ctx, args = call.args, x, second] {
      ActivationForward again = args;
      const Tensor y = ctx.empty(ctx.dtype, x.shape());
      again.y = y.mut_view();
      ctx.backend.activation_forward(again, ctx.stream);
      return y;
    };
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [forward] { return forward; }});
  }
  const ActivationOptions o = {call.args.kind, call.args.clamp, call.args.linear_offset};
  ctx.tape->record(out, [ctx, x, second, o](Tape& tape, const Tensor& dy) {
    const GradTarget dx = tape.target(x);
    const GradTarget dup = second ? tape.target(*second) : GradTarget{};
    ASHLAR_CHECK(!second || dx.mode == dup.mode, "gate and up have different numbers of consumers");
    ctx.backend.activation_backward({.dy = dy.view(),
                                     .x = x.value.view(),
                                     .up = second ? second->value.view() : ConstView{},
                                     .dx = dx.view(),
                                     .dup = dup.view(),
                                     .mode = dx.mode,
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
  return record(ctx, call, x, up);
}

Var linear_activation(const Ctx& ctx, const Var& x, Weight& w, Weight* bias, Activation kind) {
  const LinearCall product = begin_linear(ctx, x, w, bias);
  const Var pre = record_linear(ctx, product, x, w, bias);
  const ActivationCall call = begin(ctx, pre, nullptr, {.kind = kind});
  ctx.backend.linear_activation({.linear = product.args, .y = call.args.y, .kind = kind}, ctx.stream);
  return record(ctx, call, pre, nullptr);
}

}  // namespace ashlar::ops
