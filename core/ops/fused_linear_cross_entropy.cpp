#include "core/ops/fused_linear_cross_entropy.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/ops/linear.h"

namespace ashlar::ops {

namespace {

/// The matrix of the output head: the weight, or the weight with normalized rows. The gradient of the normalized rows
/// is accumulated over all chunks and then converted to the gradient of the weight.
class Head {
 public:
  Head(const Ctx& ctx, Weight& w, Weight* bias, bool norm_rows) : ctx_(ctx), w_(w), bias_(bias) {
    if (norm_rows) normal_.emplace(normalized_rows(ctx, w));
  }

  ConstView rows() const { return normal_ ? normal_->rows.view() : w_.read(ctx_.stream).view(); }

  void accumulate_grad(const Tensor& x, const Tensor& dz) {
    if (!normal_) return accumulate_weight_grad(ctx_, x, dz, w_, bias_);
    if (w_.main_grad && !grad_.main_grad) grad_.set_memory(normal_->rows, ctx_.empty(ctx_.accumulate(), w_.shape()));
    accumulate_weight_grad(ctx_, x, dz, grad_, bias_);
  }
  void finish_grad() {
    if (grad_.main_grad) normalized_rows_backward(ctx_, *normal_, grad_.main_grad, w_);
  }

 private:
  const Ctx& ctx_;
  Weight& w_;
  Weight* bias_;
  std::optional<NormalizedRows> normal_;
  Weight grad_;  // gradient of the normalized rows
};

/// The statistics of some rows. With a reduction, local_max has memory of its own; target_logit, and max_count if it is
/// present, follow row_sum in one buffer `sums`, so that one all-reduce sums all of them.
struct RowStatistics {
  MutView row_max, local_max, row_sum, target_logit, max_count, sums;
};

/// Computes the logits `z` of the rows x; those of masked ids are -inf.
void masked_logits(const Ctx& ctx, const Tensor& x, const ConstView& head, const ConstView& bias, const Tensor& z,
                   const FusedLinearCrossEntropyOptions& o) {
  ctx.backend.linear_forward({.x = x.view(), .w = head, .bias = bias, .y = z.mut_view()}, ctx.stream);
  if (o.masked_ids) {
    ctx.backend.loss_mask({.logits = z.mut_view(), .ids = o.masked_ids, .vocab_begin = o.vocab_begin}, ctx.stream);
  }
}

/// Computes the statistics of the logits `z` of this slice, then of the whole vocabulary.
void row_statistics(const Ctx& ctx, const Tensor& z, const LossShape& shape, const FusedLinearCrossEntropyOptions& o,
                    const RowStatistics& to) {
  ctx.backend.loss_row_stats({.logits = z.view(),
                              .row_max = to.local_max,
                              .row_sum = to.row_sum,
                              .target_logit = to.target_logit,
                              .shape = shape},
                             ctx.stream);
  if (o.reduction != nullptr) {
    ctx.backend.copy({.src = to.local_max, .dst = to.row_max}, ctx.stream);
    o.reduction->max(to.row_max, ctx.stream);
    ctx.backend.loss_rescale({.local_max = to.local_max, .global_max = to.row_max, .row_sum = to.row_sum}, ctx.stream);
  }
  if (to.max_count) {
    ctx.backend.loss_max_count({.logits = z.view(), .row_max = to.row_max, .max_count = to.max_count, .shape = shape},
                               ctx.stream);
  }
  if (o.reduction != nullptr) o.reduction->sum(to.sums, ctx.stream);
}

}  // namespace

void fused_linear_cross_entropy(const Ctx& ctx, const Var& h, Weight& w, Weight* bias,
                                const FusedLinearCrossEntropyOptions& o, const MutView& stats) {
  const int64_t N = h.rows(), C = h.cols(), V = w.shape()[0];
  ASHLAR_SHAPE(w, {V, C});
  ASHLAR_CHECK(o.vocab > 0 && (o.reduction != nullptr || o.vocab <= V), "vocabulary of ", o.vocab, " for ", V, " rows");
  const ValueInfo info =
      place(ctx, "fused_linear_cross_entropy", h, {{Placement::kPartialGrad, Placement::kPartialGrad}}, {&w, bias});
  const int64_t valid_cols = std::clamp<int64_t>(o.vocab - o.vocab_begin, 0, V);
  const int64_t chunk = o.chunk_rows > 0 ? std::min(o.chunk_rows, N) : ctx.backend.loss_chunk_rows(N, V, ctx.dtype);
  const bool training = ctx.tape != nullptr;
  // If the z-loss squares the largest logit, backward needs the number of columns with the maximum.
  const bool count_largest = training && o.z_coef != 0 && o.z_kind == ZKind::kMaxLogit;
  // If a row's gradient needs no more than the row, its statistics and its gradient are one call.
  const bool at_once = training && o.reduction == nullptr && !count_largest;
  Head head(ctx, w, bias, o.norm_rows);

  const Tensor logits = ctx.empty(ctx.backend.logits_dtype(ctx.dtype), {chunk, V});
  const Tensor dlogits = !training ? Tensor() : ctx.dtype == logits.dtype() ? logits : ctx.empty(ctx.dtype, {chunk, V});
  const Tensor row_max = ctx.empty(ctx.accumulate(), {chunk});
  const Tensor local_max = o.reduction == nullptr ? row_max : ctx.empty(ctx.accumulate(), {chunk});
  // One buffer for row sums, target logits and counts of the maximum, so that one all-reduce sums all of them.
  const Tensor sums = ctx.empty(ctx.accumulate(), {(count_largest ? 3 : 2) * chunk});
  const Tensor dh = training && h.requires_grad() ? ctx.empty(ctx.dtype, {N, C}) : Tensor();

  for (int64_t begin = 0; begin < N; begin += chunk) {
    const int64_t n = std::min(chunk, N - begin);
    const Tensor x = h.value.row_range(begin, n);
    const Tensor z = logits.row_range(0, n);
    const MutView max = row_max.flat_range(0, n).mut_view(), row_sum = sums.flat_range(0, n).mut_view(),
                  target_logit = sums.flat_range(n, n).mut_view(),
                  max_count = count_largest ? sums.flat_range(2 * n, n).mut_view() : MutView{};
    const LossShape shape{.targets = flat_range(o.targets, begin, n),
                          .vocab_begin = o.vocab_begin,
                          .valid_cols = valid_cols,
                          .logit_scale = o.logit_scale,
                          .softcap = o.softcap};
    const Tensor dz = training ? dlogits.row_range(0, n) : Tensor();
    // 1. Compute the logits.
    masked_logits(ctx, x, head.rows(), value_or_none(bias, ctx.stream), z, o);
    // 2. Compute their statistics, and at once or in step 4 their gradients.
    if (at_once) {
      ctx.backend.loss_stats_and_grad({.logits = z.view(),
                                       .row_max = max,
                                       .row_sum = row_sum,
                                       .target_logit = target_logit,
                                       .dlogits = dz.mut_view(),
                                       .shape = shape,
                                       .z_coef = o.z_coef,
                                       .scalars = ctx.scalars},
                                      ctx.stream);
    } else {
      row_statistics(ctx, z, shape, o,
                     {.row_max = max,
                      .local_max = local_max.flat_range(0, n).mut_view(),
                      .row_sum = row_sum,
                      .target_logit = target_logit,
                      .max_count = max_count,
                      .sums = sums.flat_range(0, (count_largest ? 3 : 2) * n).mut_view()});
    }
    // 3. Add the loss to `stats`.
    ctx.backend.loss_reduce({.row_max = max,
                             .row_sum = row_sum,
                             .target_logit = target_logit,
                             .shape = shape,
                             .z_coef = o.z_coef,
                             .z_kind = o.z_kind,
                             .stats = stats},
                            ctx.stream);
    if (!training) continue;
    // 4. Compute the gradients of the logits, the weight and the rows of h.
    if (!at_once) {
      ctx.backend.loss_backward({.logits = z.view(),
                                 .row_max = max,
                                 .row_sum = row_sum,
                                 .max_count = max_count,
                                 .dlogits = dz.mut_view(),
                                 .shape = shape,
                                 .z_coef = o.z_coef,
                                 .scalars = ctx.scalars},
                                ctx.stream);
    }
    head.accumulate_grad(x, dz);
    if (dh) {
      ctx.backend.linear_backward_input({.dy = dz.view(), .w = head.rows(), .dx = dh.row_range(begin, n).mut_view()},
                                        ctx.stream);
    }
  }
  head.finish_grad();
  if (!dh) return;
  // The gradient dh of h is already computed. The node only passes it on in backward, so the node's result is a
  // placeholder whose gradient is set to dh at once.
  const Var done = ctx.tape->output(dh, info);
  ctx.tape->record(done, [input = h.without_value()](Tape& tape, const Tensor& dy) { tape.add_grad(input, dy); });
  ctx.tape->seed(done, dh);
}

TargetStatistics target_statistics(const Ctx& ctx, const Tensor& h, Weight& w, Weight* bias,
                                   const FusedLinearCrossEntropyOptions& o) {
  ASHLAR_CHECK(ctx.tape == nullptr, "target statistics have no gradient");
  const int64_t N = h.rows(), V = w.shape()[0];
  ASHLAR_SHAPE(w, {V, h.cols()});
  const int64_t chunk = std::min(N, ctx.backend.loss_chunk_rows(N, V, ctx.dtype));
  const Head head(ctx, w, bias, o.norm_rows);
  const Tensor logits = ctx.empty(ctx.backend.logits_dtype(ctx.dtype), {chunk, V});
  const Tensor local_max = ctx.empty(ctx.accumulate(), {chunk}), sums = ctx.empty(ctx.accumulate(), {3 * chunk});
  TargetStatistics all{.row_max = ctx.empty(ctx.accumulate(), {N}),
                       .row_sum = ctx.empty(ctx.accumulate(), {N}),
                       .target_logit = ctx.empty(ctx.accumulate(), {N}),
                       .max_count = ctx.empty(ctx.accumulate(), {N})};
  for (int64_t begin = 0; begin < N; begin += chunk) {
    const int64_t n = std::min(chunk, N - begin);
    const MutView row_max = all.row_max.flat_range(begin, n).mut_view();
    const auto part = [&](int64_t i) { return sums.flat_range(i * n, n).mut_view(); };
    const RowStatistics rows{.row_max = row_max,
                             .local_max = o.reduction == nullptr ? row_max : local_max.flat_range(0, n).mut_view(),
                             .row_sum = part(0),
                             .target_logit = part(1),
                             .max_count = part(2),
                             .sums = sums.flat_range(0, 3 * n).mut_view()};
    const Tensor z = logits.row_range(0, n);
    masked_logits(ctx, h.row_range(begin, n), head.rows(), value_or_none(bias, ctx.stream), z, o);
    row_statistics(ctx, z,
                   {.targets = flat_range(o.targets, begin, n),
                    .vocab_begin = o.vocab_begin,
                    .valid_cols = std::clamp<int64_t>(o.vocab - o.vocab_begin, 0, V),
                    .logit_scale = o.logit_scale,
                    .softcap = o.softcap},
                   o, rows);
    for (const auto& [from, to] :
         {std::pair(rows.row_sum, &all.row_sum), std::pair(rows.target_logit, &all.target_logit),
          std::pair(rows.max_count, &all.max_count)})
      ctx.backend.copy({.src = from, .dst = to->flat_range(begin, n).mut_view()}, ctx.stream);
  }
  return all;
}

}  // namespace ashlar::ops
