#include "core/ops/embedding.h"

namespace ashlar::ops {

Var embedding(const Ctx& ctx, const EmbeddingOptions& o, Weight& table, Weight* positions_table) {
  const Lookup tokens = o.tokens, positions = o.positions;
  const int64_t C = table.value.cols();
  const Tensor y = ctx.empty(ctx.dtype, {o.N, C});
  ctx.backend.embedding_forward(
      {.ids = tokens.ids, .table = table.read().view(), .out = y.mut_view(), .scale = o.scale, .first_id = o.first_id},
      ctx.stream);
  if (positions_table != nullptr) {
    ctx.backend.embedding_forward({.ids = positions.ids,
                                   .table = positions_table->read().view(),
                                   .out = y.mut_view(),
                                   .mode = GradMode::kAccumulate},
                                  ctx.stream);
  }
  if (ctx.tape == nullptr) return {.value = y};

  ASHLAR_CHECK(tokens.order && (positions_table == nullptr || positions.order), "training needs the sorted ids");
  const Var out = ctx.tape->output(y);
  ctx.tape->record("embedding", out, [=, &table, slot = out.slot](Tape& tape, WeightWork*) {
    const Tensor dy = tape.take_grad({.value = {}, .slot = slot});
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
