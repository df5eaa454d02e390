#include "core/ops/rope.h"

#include <cmath>
#include <utility>

namespace ashlar::ops {

RopeTables RopeTables::make(const Ctx& ctx, int64_t positions, int64_t dims, double base) {
  const int64_t half = dims / 2;
  const DType dtype = ctx.accumulate();
  std::vector<double> cosines(positions * half), sines(positions * half);
  for (int64_t m = 0; m < half; ++m) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(m) / static_cast<double>(dims));
    for (int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      cosines[t * half + m] = std::cos(angle);
      sines[t * half + m] = std::sin(angle);
    }
  }
  const auto upload = [&](const std::vector<double>& values) {
    const Tensor t = ctx.empty(dtype, {positions, half}, MemoryKind::kParameters);
    if (dtype == DType::kFloat64) {
      ctx.backend.write(values.data(), t.mut_view(), ctx.stream);
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      ctx.backend.write(narrow.data(), t.mut_view(), ctx.stream);
    }
    return t;
  };
  return {.cos = upload(cosines), .sin = upload(sines)};
}

Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options) {
  const int64_t N = x.rows();
  ASHLAR_SHAPE(x, {N, options.heads * options.head_dim});
  const Made made = place(ctx, "rope", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  const auto rotate = [ctx, positions, tables, options](ConstView in, MutView out, bool inverse, GradMode mode) {
    ctx.backend.rope({.x = in,
                      .y = out,
                      .positions = positions,
                      .cos = tables.cos.view(),
                      .sin = tables.sin.view(),
                      .heads = options.heads,
                      .rotated_heads = options.rotated_heads,
                      .head_dim = options.head_dim,
                      .dims = options.dims,
                      .style = options.style,
                      .inverse = inverse,
                      .mode = mode},
                     ctx.stream);
  };
  const bool in_place = x.value.unique();
  const Var input = x.without_value();
  Var out;
  if (in_place) {
    rotate(x.value.view(), x.value.mut_view(), false, GradMode::kOverwrite);
    out = result_in_place(ctx, std::move(x), made);
  } else {
    const Tensor y = ctx.empty(ctx.dtype, x.shape());
    rotate(x.value.view(), y.mut_view(), false, GradMode::kOverwrite);
    out = result(ctx, y, made);
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
