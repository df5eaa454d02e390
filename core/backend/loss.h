#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// What the loss adds up over rows, in double.
struct LossStats {
  double loss = 0;    ///< sum over valid rows of lse - target logit
  double z_loss = 0;  ///< sum over valid rows of z_coef * lse^2
  double log_z = 0;   ///< sum over valid rows of lse
  double max_log_z = -1e300;
  double max_logit = -1e300;
  int64_t valid = 0;  ///< rows with target >= 0
};

/// Cross-entropy over (a slice of) the vocabulary in three parts, so that a vocabulary split over tensor ranks needs
/// only two small reductions between them. z = logits * logit_scale; columns at and beyond `valid_cols` are
/// padding and count as -inf. `target` is a global id, -1 = not counted; the slice holds ids
/// [vocab_begin, vocab_begin + valid_cols). Served: softcap 0, z kind lse.
struct LossShape {
  const int32_t* targets = nullptr;  ///< [n]
  int64_t vocab_begin = 0;
  int64_t valid_cols = 0;
  double logit_scale = 1;
  double softcap = 0;  ///< 0 = none
};

/// 1. row_max[n] = max over valid columns of z.
struct LossRowMax {
  ConstView logits;  ///< [n, V_loc] accumulate dtype
  MutView row_max;   ///< [n] accumulate dtype, written
  LossShape shape;
};

/// 2. row_sum[n] = sum exp(z - row_max[n]); target_logit[n] = z[target] if this slice holds it, else 0.
struct LossRowSums {
  ConstView logits;
  ConstView row_max;
  MutView row_sum;       ///< [n] accumulate dtype, written
  MutView target_logit;  ///< [n] accumulate dtype, written
  LossShape shape;
};

/// 3. stats += this chunk's rows (same on every rank of the slice group).
struct LossReduce {
  ConstView row_max, row_sum, target_logit;  ///< [n]
  LossShape shape;
  double z_coef = 0;
  LossStats* stats = nullptr;
};

/// 4. dlogits = logit_scale * inv_valid_tokens * ((1 + 2 z_coef lse) * softmax(z) - onehot(target)); rows with
/// target -1 and padded columns are exactly zero. dlogits may be logits itself when the dtypes agree.
struct LossBackward {
  ConstView logits;
  ConstView row_max, row_sum;
  MutView dlogits;  ///< [n, V_loc] storage dtype, written
  LossShape shape;
  double z_coef = 0;
  const StepScalars* scalars = nullptr;
};

}  // namespace ashlar
