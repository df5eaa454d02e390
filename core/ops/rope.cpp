#include "core/ops/rope.h"

#include <cmath>
#include <utility>

namespace ashlar::ops {

namespace {

struct Tables {
  Tensor cos, sin;
};

/// Returns the tables factors[t] * cos(t f) and factors[t] * sin(t f) for positions t < factors.size() and each
/// frequency f.
Tables make_tables(const Ctx& ctx, const std::vector<double>& factors, const std::vector<double>& frequencies) {
  const auto positions = std::ssize(factors), half = std::ssize(frequencies);
  std::vector<double> cosines(positions * half), sines(positions * half);
  for (int64_t m = 0; m < half; ++m) {
    for (int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequencies[m];
      cosines[t * half + m] = factors[t] * std::cos(angle);
      sines[t * half + m] = factors[t] * std::sin(angle);
    }
  }
  return {.cos = ctx.upload_numbers(cosines, {positions, half}), .sin = ctx.upload_numbers(sines, {positions, half})};
}

}  // namespace

RopeTables RopeTables::make(const Ctx& ctx, int64_t positions, const std::vector<double>& frequencies, double factor,
                            std::vector<double> query_factors) {
  Tables tables = make_tables(ctx, std::vector<double>(static_cast<size_t>(positions), factor), frequencies);
  if (query_factors.empty())
    return {.cos = std::move(tables.cos), .sin = std::move(tables.sin), .q_cos = {}, .q_sin = {}};
  for (double& f : query_factors) f *= factor;
  Tables queries = make_tables(ctx, query_factors, frequencies);
  return {.cos = std::move(tables.cos),
          .sin = std::move(tables.sin),
          .q_cos = std::move(queries.cos),
          .q_sin = std::move(queries.sin)};
}

Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options) {
  const int64_t width = options.heads * options.head_dim, rest_width = x.cols() - width;
  ASHLAR_CHECK(rest_width >= 0, "rope: ", options.heads, " heads of ", options.head_dim, " in ", x.cols(), " columns");
  const ValueInfo info =
      place(ctx, "rope", x,
            {{Placement::kColumnsSplit, Placement::kColumnsSplit}, {Placement::kPartialGrad, Placement::kPartialGrad}});
  const auto rotate = [ctx, positions, tables, options, width, rest_width](ConstView in, MutView out, bool inverse,
                                                                           GradMode mode) {
    if (rest_width > 0 && in.data != out.data) {
      ctx.backend.copy(
          {.src = column_range(in, width, rest_width), .dst = column_range(out, width, rest_width), .mode = mode},
          ctx.stream);
    }
    Rope call{.x = column_range(in, 0, width),
              .y = column_range(out, 0, width),
              .positions = positions,
              .cos = tables.cos.view(),
              .sin = tables.sin.view(),
              .heads = options.heads,
              .rotated_heads = options.rotated_heads,
              .head_dim = options.head_dim,
              .dims = options.dims,
              .style = options.style,
              .inverse = inverse,
              .mode = mode};
    if (!tables.q_cos) return ctx.backend.rope(call, ctx.stream);
    // Queries have tables of their own, which include a factor per position. With these tables, `inverse` gives the
    // transpose of the scaled rotation, which backward needs.
    const int64_t q_heads = options.query_heads, rest = options.heads - q_heads;
    call.x = column_range(in, 0, q_heads * options.head_dim);
    call.y = column_range(out, 0, q_heads * options.head_dim);
    call.heads = call.rotated_heads = q_heads;
    call.cos = tables.q_cos.view();
    call.sin = tables.q_sin.view();
    ctx.backend.rope(call, ctx.stream);
    call.x = column_range(in, q_heads * options.head_dim, rest * options.head_dim);
    call.y = column_range(out, q_heads * options.head_dim, rest * options.head_dim);
    call.heads = rest;
    call.rotated_heads = options.rotated_heads - q_heads;
    call.cos = tables.cos.view();
    call.sin = tables.sin.view();
    ctx.backend.rope(call, ctx.stream);
  };
  ASHLAR_CHECK(!tables.q_cos || options.dims == options.head_dim,
               "expected whole heads to rotate with query factors, got ", options.dims, " of ", options.head_dim,
               " columns");
  const bool in_place = x.value.unique();
  const Var input = x.without_value();
  Var out;
  if (in_place) {
    rotate(x.value.view(), x.value.mut_view(), false, GradMode::kOverwrite);
    out = result_in_place(ctx, std::move(x), info);
  } else {
    const Tensor y = ctx.empty(ctx.dtype, x.shape());
    rotate(x.value.view(), y.mut_view(), false, GradMode::kOverwrite);
    out = result(ctx, y, info);
  }
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [rotate, input, in_place](Tape& tape, const Tensor& dy) {
    if (!input.requires_grad()) return;
    if (in_place) {
      rotate(dy.view(), dy.mut_view(), true, GradMode::kOverwrite);
      return tape.pass_in_place(input);
    }
    const GradTarget dx = tape.target(input);
    rotate(dy.view(), dx.view(), true, dx.mode);
  });
  return out;
}

}  // namespace ashlar::ops
