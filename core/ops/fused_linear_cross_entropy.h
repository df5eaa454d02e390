#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"
#include "core/ops/normalize_rows.h"
#include "core/ops/reduction.h"

namespace ashlar::ops {

struct FusedLinearCrossEntropyOptions {
  ConstView targets;               ///< [N] kInt32, global ids; a row with -1 (ignore_index) is skipped
  int64_t vocab = 0;               ///< number of valid ids; later rows of the head are padding, masked and without
                                   ///< gradient
  int64_t vocab_begin = 0;         ///< the weight has the rows [vocab_begin, vocab_begin + V) of the head
  Reduction* reduction = nullptr;  ///< reduces over the slices of the vocabulary; null: the weight has all rows
  double logit_scale = 1;
  double softcap = 0;      ///< 0 = no softcap
  bool norm_rows = false;  ///< true: the rows of the head are normalized to length one
  ConstView masked_ids{};  ///< [M] kInt32, global ids whose logits are set to -inf; must not be targets
  double z_coef = 0;
  ZKind z_kind = ZKind::kLse;
  int64_t chunk_rows = 0;  ///< number of rows whose logits are computed at a time; 0: chosen by the backend
};

/// Computes the cross-entropy (and z-loss) of the logits h w^T + bias, with h [N, C], w [V, C] and bias [V] or null. It
/// works on chunks of rows, so that the logits of the whole micro-batch are never in memory at once. Adds to `stats`
/// (LossStats in device memory). If ctx has a tape, the same pass computes the gradients of w, bias and h, scaled by 1
/// / (number of valid targets in the global batch) from ctx.scalars; the caller need not seed the recorded node. If w
/// is a slice of the vocabulary, the gradient of h is partial on each rank, and `stats` covers the whole vocabulary on
/// every rank.
void fused_linear_cross_entropy(const Ctx& ctx, const Var& h, Weight& w, Weight* bias,
                                const FusedLinearCrossEntropyOptions& options, const MutView& stats);

/// Row statistics of the logits of h, over the whole vocabulary, in the accumulate dtype.
struct TargetStatistics {
  Tensor row_max;       ///< [N] largest logit
  Tensor row_sum;       ///< [N] sum of exp(logit - row_max)
  Tensor target_logit;  ///< [N]
  Tensor max_count;     ///< [N] number of columns whose logit is row_max
};

/// Computes the statistics from which the log probability of each target, target_logit - row_max - log(row_sum),
/// follows, and whether it is the largest. Logits, chunks and reductions are those of fused_linear_cross_entropy.
/// Without a tape.
TargetStatistics target_statistics(const Ctx& ctx, const Tensor& h, Weight& w, Weight* bias,
                                   const FusedLinearCrossEntropyOptions& options);

}  // namespace ashlar::ops
