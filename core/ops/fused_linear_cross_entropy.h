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

}  // namespace ashlar::ops
