#include "core/ops/embedding.h"

namespace ashlar::ops {

Var embedding(const Ctx& ctx, const EmbeddingOptions& o, Weight& table, Weight* positions_table) {
  const Lookup tokens = o.tokens, positions = o.positions;
  const int64_t C = table.shape()[1];
  const Made made =  // every rank sees all ids, and has its slice's part of their rows
      place(ctx, "embedding", {.value = {}, .made = {.op = "ids", .placement = Placement::kReplicated}},
            {{Placement::kReplicated, Placement::kPartialSum}}, {&table, positions_table});
  const Tensor y = ctx.empty(ctx.dtype, {o.N, C});
  ctx.backend.embedding_forward({.ids = tokens.ids,
                                 .table = table.read(ctx.stream).view(),
                                 .out = y.mut_view(),
                                 .scale = o.scale,
                                 .first_id = o.first_id},
                                ctx.stream);
  if (positions_table != nullptr) {
    ctx.backend.embedding_forward({.ids = positions.ids,
                                   .table = positions_table->read(ctx.stream).view(),
                                   .out = y.mut_view(),
                                   .mode = GradMode::kAccumulate},
                                  ctx.stream);
  }
  const Var out = result(ctx, y, made);
  if (ctx.tape == nullptr) return out;

  ASHLAR_CHECK(tokens.order && (positions_table == nullptr || positions.order), "training needs the sorted ids");
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
    if (positions_table == nullptr) return;
    if (const GradMode mode = positions_table->next_mode(); mode != GradMode::kSkip) {
      ctx.backend.embedding_backward({.ids = positions.ids,
                                      .order = positions.order,
                                      .dy = dy.view(),
                                      .dtable = positions_table->main_grad.mut_view(),
                                      .mode = mode},
                                     ctx.stream);
    }
  });
  return out;
}

}  // namespace ashlar::ops
