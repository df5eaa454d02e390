#include "core/ops/fused_linear_cross_entropy.h"

#include <algorithm>

#include "core/ops/linear.h"

namespace ashlar::ops {

void fused_linear_cross_entropy(const Ctx& ctx, const Var& h, Weight& w, Weight* bias,
                                const FusedLinearCrossEntropyOptions& o, const MutView& stats) {
  const int64_t N = h.rows(), C = h.cols(), V = w.shape()[0];
  ASHLAR_SHAPE(w, {V, C});
  ASHLAR_CHECK(o.vocab > 0 && (o.reduction != nullptr || o.vocab <= V), "vocabulary ", o.vocab, " of ", V, " rows");
  const Made made =
      place(ctx, "fused_linear_cross_entropy", h, {{Placement::kReplicated, Placement::kReplicated}}, {&w, bias});
  const int64_t valid_cols = std::clamp<int64_t>(o.vocab - o.vocab_begin, 0, V);
  const int64_t chunk = o.chunk_rows > 0 ? std::min(o.chunk_rows, N) : ctx.backend.loss_chunk_rows(N, V, ctx.dtype);
  const bool training = ctx.tape != nullptr;

  const Tensor logits = ctx.empty(ctx.backend.logits_dtype(ctx.dtype), {chunk, V});
  const Tensor dlogits = !training ? Tensor() : ctx.dtype == logits.dtype() ? logits : ctx.empty(ctx.dtype, {chunk, V});
  const Tensor row_max = ctx.empty(ctx.accumulate(), {chunk});
  const Tensor local_max = o.reduction == nullptr ? row_max : ctx.empty(ctx.accumulate(), {chunk});
  const Tensor sums = ctx.empty(ctx.accumulate(), {2 * chunk});  // of rows, then target logits: reduced as one
  const Tensor dh = training && h.requires_grad() ? ctx.empty(ctx.dtype, {N, C}) : Tensor();

  for (int64_t begin = 0; begin < N; begin += chunk) {
    const int64_t n = std::min(chunk, N - begin);
    const Tensor x = h.value.row_range(begin, n);
    const Tensor z = logits.row_range(0, n);
    const MutView max = row_max.flat_range(0, n).mut_view(), row_sum = sums.flat_range(0, n).mut_view(),
                  target_logit = sums.flat_range(n, n).mut_view();
    const LossShape shape{.targets = flat_range(o.targets, begin, n),
                          .vocab_begin = o.vocab_begin,
                          .valid_cols = valid_cols,
                          .logit_scale = o.logit_scale};
    // 1. logits
    ctx.backend.linear_forward({.x = x.view(),
                                .w = w.read(ctx.stream).view(),
                                .bias = bias == nullptr ? ConstView{} : bias->read(ctx.stream).view(),
                                .y = z.mut_view()},
                               ctx.stream);
    // 2. statistics of this slice, then of the whole vocabulary
    const MutView slice_max = local_max.flat_range(0, n).mut_view();
    ctx.backend.loss_row_stats(
        {.logits = z.view(), .row_max = slice_max, .row_sum = row_sum, .target_logit = target_logit, .shape = shape},
        ctx.stream);
    if (o.reduction != nullptr) {
      ctx.backend.copy({.src = slice_max, .dst = max}, ctx.stream);
      o.reduction->max(max, ctx.stream);
      ctx.backend.loss_rescale({.local_max = slice_max, .global_max = max, .row_sum = row_sum}, ctx.stream);
      o.reduction->sum(sums.flat_range(0, 2 * n).mut_view(), ctx.stream);
    }
    // 3. loss
    ctx.backend.loss_reduce({.row_max = max,
                             .row_sum = row_sum,
                             .target_logit = target_logit,
                             .shape = shape,
                             .z_coef = o.z_coef,
                             .stats = stats},
                            ctx.stream);
    if (!training) continue;
    // 4. gradients of logits, weight and rows
    const Tensor dz = dlogits.row_range(0, n);
    ctx.backend.loss_backward({.logits = z.view(),
                               .row_max = max,
                               .row_sum = row_sum,
                               .dlogits = dz.mut_view(),
                               .shape = shape,
                               .z_coef = o.z_coef,
                               .scalars = ctx.scalars},
                              ctx.stream);
    accumulate_weight_grad(ctx, x, dz, w, bias);
    if (dh) {
      ctx.backend.linear_backward_input(
          {.dy = dz.view(), .w = w.read(ctx.stream).view(), .dx = dh.row_range(begin, n).mut_view()}, ctx.stream);
    }
  }
  if (!dh) return;
  // The node's own gradient is one, so its result is a placeholder that is seeded at once.
  const Var done = ctx.tape->output(dh, made);
  ctx.tape->record(done, [input = h.without_value()](Tape& tape, const Tensor& dy) { tape.add_grad(input, dy); });
  ctx.tape->seed(done, dh);
}

}  // namespace ashlar::ops
