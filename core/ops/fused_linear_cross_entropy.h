#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"
#include "core/ops/normalize_rows.h"
#include "core/ops/reduction.h"

namespace ashlar::ops {

struct FusedLinearCrossEntropyOptions {
  ConstView targets;               ///< [N] kInt32, global ids; ignore_index (-1): the row is skipped
  int64_t vocab = 0;               ///< number of valid ids; later rows are padding, masked and without gradient
  int64_t vocab_begin = 0;         ///< the weight holds rows [vocab_begin, vocab_begin + V) of the head
  Reduction* reduction = nullptr;  ///< over the slices of the vocabulary; null: the weight holds all rows
  double logit_scale = 1;
  double softcap = 0;      ///< 0 = none
  bool norm_rows = false;  ///< rows of the head are normalized to length one
  ConstView masked_ids{};  ///< [M] kInt32, global: their logits are -inf; must not contain targets
  double z_coef = 0;
  ZKind z_kind = ZKind::kLse;
  int64_t chunk_rows = 0;  ///< rows of logits held at once; 0: chosen by the backend
};

/// Cross-entropy (+ z-loss) of h [N, C] against w [V, C], bias [V] or null, chunked over rows so that the logits of the
/// micro-batch never exist at once. Adds to `stats` (LossStats in device memory). While recording, the gradients of w,
/// bias and h are computed in the same pass, scaled by 1/(valid targets of the whole global batch) from ctx.scalars.
/// The recorded node has the constant gradient one and needs no seed. With a slice of the vocabulary, the gradient of h
/// is a partial sum over the slices, and `stats` cover the whole vocabulary on every rank.
void fused_linear_cross_entropy(const Ctx& ctx, const Var& h, Weight& w, Weight* bias,
                                const FusedLinearCrossEntropyOptions& options, const MutView& stats);

}  // namespace ashlar::ops
