#include "core/ops/embedding.h"

#include <cmath>
#include <vector>

namespace ashlar::ops {

namespace {

/// Every tensor rank looks up all ids in its slice of the table, so its result is a partial sum.
ValueInfo info_of(const Ctx& ctx, std::initializer_list<const Weight*> tables) {
  return place(ctx, "embedding", {.value = {}, .info = {.op = "ids", .placement = Placement::kPartialGrad}},
               {{Placement::kPartialGrad, Placement::kPartialSum}}, tables);
}

void look_up_positions(const Ctx& ctx, const EmbeddingOptions& o, const Weight* table, const Tensor& y, GradMode mode) {
  const ConstView rows = table == nullptr ? o.fixed_positions : table->read(ctx.stream).view();
  ctx.backend.embedding_forward(
      {.ids = o.positions.ids, .table = rows, .out = y.mut_view(), .mode = mode, .first_id = o.first_position},
      ctx.stream);
}

void positions_backward(const Ctx& ctx, const EmbeddingOptions& o, const Tensor& dy, Weight& table) {
  const GradMode mode = table.next_mode();
  if (mode == GradMode::kSkip) return;
  ctx.backend.embedding_backward({.ids = o.positions.ids,
                                  .order = o.positions.order,
                                  .dy = dy.view(),
                                  .dtable = table.main_grad.mut_view(),
                                  .mode = mode,
                                  .first_id = o.first_position},
                                 ctx.stream);
}

}  // namespace

Tensor sinusoidal_table(const Ctx& ctx, int64_t positions, int64_t width) {
  const int64_t half = width / 2;
  ASHLAR_CHECK(half > 1, "expected a table at least 4 wide, got ", width);
  std::vector<double> values(positions * width, 0.0);
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t m = 0; m < half; ++m) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(m) / static_cast<double>(half - 1));
      values[p * width + m] = std::sin(angle);
      values[p * width + half + m] = std::cos(angle);
    }
  }
  const Tensor exact = ctx.empty(ctx.accumulate(), {positions, width});
  if (exact.dtype() == DType::kFloat64) {
    ctx.backend.write(values.data(), exact.mut_view(), ctx.stream);
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    ctx.backend.write(narrow.data(), exact.mut_view(), ctx.stream);
  }
  const Tensor table = ctx.empty(ctx.dtype, {positions, width}, MemoryKind::kParameters);
  ctx.backend.copy({.src = exact.view(), .dst = table.mut_view()}, ctx.stream);
  return table;
}

Tensor id_list(const Ctx& ctx, std::span<const int64_t> ids) {
  const std::vector<int32_t> narrow(ids.begin(), ids.end());
  const Tensor list = ctx.empty(DType::kInt32, {static_cast<int64_t>(narrow.size())}, MemoryKind::kParameters);
  ctx.backend.write(narrow.data(), list.mut_view(), ctx.stream);
  return list;
}

Var embedding(const Ctx& ctx, const EmbeddingOptions& o, Weight& table, Weight* positions_table) {
  const Lookup tokens = o.tokens;
  const ValueInfo info = info_of(ctx, {&table, positions_table});
  const Tensor y = ctx.empty(ctx.dtype, {o.N, table.shape()[1]});
  ctx.backend.embedding_forward({.ids = tokens.ids,
                                 .table = table.read(ctx.stream).view(),
                                 .out = y.mut_view(),
                                 .scale = o.scale,
                                 .first_id = o.first_id},
                                ctx.stream);
  if (positions_table != nullptr || o.fixed_positions)
    look_up_positions(ctx, o, positions_table, y, GradMode::kAccumulate);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ASHLAR_CHECK(tokens.order && (positions_table == nullptr || o.positions.order),
               "training needs the sorted ids (order)");
  ctx.tape->record(out, [=, &table](Tape&, const Tensor& dy) {
    if (const GradMode mode = table.next_mode(); mode != GradMode::kSkip) {
      ctx.backend.embedding_backward({.ids = tokens.ids,
                                      .order = tokens.order,
                                      .dy = dy.view(),
                                      .dtable = table.main_grad.mut_view(),
                                      .scale = o.scale,
                                      .mode = mode,
                                      .first_id = o.first_id},
                                     ctx.stream);
    }
    if (positions_table != nullptr) positions_backward(ctx, o, dy, *positions_table);
  });
  return out;
}

Var position_embedding(const Ctx& ctx, const EmbeddingOptions& o, Weight* positions_table) {
  const ValueInfo info = info_of(ctx, {positions_table});
  const int64_t C = positions_table == nullptr ? o.fixed_positions.cols : positions_table->shape()[1];
  const Tensor y = ctx.empty(ctx.dtype, {o.N, C});
  look_up_positions(ctx, o, positions_table, y, GradMode::kOverwrite);
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ASHLAR_CHECK(positions_table == nullptr || o.positions.order, "training needs the sorted positions");
  ctx.tape->record(out, [=](Tape&, const Tensor& dy) {
    if (positions_table != nullptr) positions_backward(ctx, o, dy, *positions_table);
  });
  return out;
}

}  // namespace ashlar::ops
