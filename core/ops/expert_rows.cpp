#include "core/ops/expert_rows.h"

#include <optional>

namespace ashlar::ops {

ExpertSlots sort_choices(const Ctx& ctx, const Tensor& choices, int64_t first, int64_t count) {
  const ExpertSlots at{.offsets = ctx.empty(DType::kInt32, Shape{count + 1}),
                       .slots = ctx.empty(DType::kInt32, choices.shape()),
                       .rows = choices.size()};
  ctx.backend.sort_choices({.choices = choices.view(),
                            .offsets = at.offsets.mut_view(),
                            .slots = at.slots.mut_view(),
                            .first_expert = first},
                           ctx.stream);
  return at;
}

namespace {

std::optional<Var> copy_of(const Var* v) { return v == nullptr ? std::nullopt : std::optional<Var>(*v); }

ConstView values_of(const std::optional<Var>& v) { return v ? v->value.view() : ConstView{}; }

/// Returns the buffer for the gradient of weights, which have no other consumer; undefined if none is wanted.
Tensor gradient_of(Tape& tape, const std::optional<Var>& weights) {
  if (!weights) return {};
  const GradTarget target = tape.target(*weights);
  ASHLAR_CHECK(target.mode != GradMode::kAccumulate, "expected one consumer of the weights of experts");
  return target.grad;
}

}  // namespace

Var dispatch(const Ctx& ctx, const Var& x, const ExpertSlots& at, const Var* weights) {
  ASHLAR_SHAPE(at.slots, {x.rows(), at.slots.cols()});
  const ValueInfo info = place(ctx, "dispatch", x, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  if (weights != nullptr) place_alike("dispatch", x, *weights);
  const Tensor rows = ctx.empty(ctx.dtype, {at.rows, x.cols()});
  const std::optional<Var> factors = copy_of(weights);
  ctx.backend.dispatch_rows({.x = x.value.view(),
                             .slots = at.slots.view(),
                             .offsets = at.offsets.view(),
                             .weights = values_of(factors),
                             .rows = rows.mut_view()},
                            ctx.stream);
  const Var out = result(ctx, rows, info);
  if (ctx.tape == nullptr) return out;

  // The values of x are needed only for the gradient of the weights.
  const std::optional<Saved> saved = factors ? std::optional<Saved>(Saved(x)) : std::nullopt;
  ctx.tape->record(out, [ctx, input = x.without_value(), saved, at, factors](Tape& tape, const Tensor& dy) {
    const Tensor dweights = gradient_of(tape, factors);
    const Tensor others = dweights ? saved->get() : Tensor{};
    const GradTarget dx = tape.target(input);
    const Tensor sum = dx.wanted() ? dx.grad : ctx.empty(ctx.dtype, {at.slots.rows(), dy.cols()});
    ctx.backend.combine_rows({.rows = dy.view(),
                              .slots = at.slots.view(),
                              .weights = values_of(factors),
                              .others = view_or_none(others),
                              .y = sum.mut_view(),
                              .dots = mut_view_or_none(dweights),
                              .mode = dx.wanted() ? dx.mode : GradMode::kOverwrite},
                             ctx.stream);
  });
  return out;
}

Var combine(const Ctx& ctx, const Var& rows, const ExpertSlots& at, const Var* weights) {
  ASHLAR_SHAPE(rows.value, {at.rows, rows.cols()});
  const ValueInfo info = place(ctx, "combine", rows, {{Placement::kPartialSum, Placement::kPartialSum}});
  const Tensor y = ctx.empty(ctx.dtype, {at.slots.rows(), rows.cols()});
  const std::optional<Var> factors = copy_of(weights);
  ctx.backend.combine_rows(
      {.rows = rows.value.view(), .slots = at.slots.view(), .weights = values_of(factors), .y = y.mut_view()},
      ctx.stream);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, rows, at, factors](Tape& tape, const Tensor& dy) {
    const Tensor dweights = gradient_of(tape, factors);
    const GradTarget target = tape.target(rows);
    ASHLAR_CHECK(target.mode != GradMode::kAccumulate, "expected one consumer of the rows of experts");
    const Tensor drows = target.wanted() ? target.grad : ctx.empty(ctx.dtype, rows.shape());
    ctx.backend.dispatch_rows({.x = dy.view(),
                               .slots = at.slots.view(),
                               .offsets = at.offsets.view(),
                               .weights = values_of(factors),
                               .others = dweights ? rows.value.view() : ConstView{},
                               .rows = drows.mut_view(),
                               .dots = mut_view_or_none(dweights)},
                              ctx.stream);
  });
  return out;
}

}  // namespace ashlar::ops
