#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// What the loss adds up over rows, in double. Lives in device memory (struct_of).
struct LossStats {
  double loss = 0;    ///< sum over valid rows of lse - target logit
  double z_loss = 0;  ///< sum over valid rows of z_coef * lse^2
  double log_z = 0;   ///< sum over valid rows of lse
  double max_log_z = -1e300;
  double max_logit = -1e300;
  int64_t valid = 0;  ///< rows with target >= 0
};

// Cross-entropy over (a slice of) the vocabulary. Over a whole vocabulary it takes three calls: statistics, reduction,
// gradient. Where tensor ranks hold slices, the row maxima are reduced (max) after the first, each slice's sums are
// rescaled from its own maxima to the common ones, and then sums and target logits are reduced (sum).
// z = logits * logit_scale; columns at and beyond `valid_cols` are padding and count as -inf.
// A backend says in which dtype it wants the logits (Backend::logits_dtype): storage or accumulate. Row statistics are
// of the accumulate dtype.

/// What the calls share. The slice holds the ids [vocab_begin, vocab_begin + valid_cols).
struct LossShape {
  ConstView targets;  ///< [n] kInt32, global ids; ignore_index (-1): the row does not count
  int64_t vocab_begin = 0;
  int64_t valid_cols = 0;
  double logit_scale = 1;
  double softcap = 0;  ///< 0 = none; others are not supported yet
};

/// row_max[n] = max over valid columns of z (-inf without one); row_sum[n] = sum exp(z - row_max[n]) (0 where all are
/// -inf); target_logit[n] = z[target] if this slice holds it, else 0.
struct LossRowStats {
  ConstView logits;                        ///< [n, V_loc]
  MutView row_max, row_sum, target_logit;  ///< [n] accumulate dtype, written
  LossShape shape;
};

/// row_sum[n] *= exp(local_max[n] - global_max[n]); a slice without a finite logit keeps its 0.
struct LossRescale {
  ConstView local_max;   ///< [n] accumulate dtype, of this slice
  ConstView global_max;  ///< [n] accumulate dtype, of all slices
  MutView row_sum;       ///< [n] accumulate dtype, read and written
};

/// stats += these rows, from statistics over the whole vocabulary.
struct LossReduce {
  ConstView row_max, row_sum, target_logit;  ///< [n]
  LossShape shape;
  double z_coef = 0;
  MutView stats;  ///< LossStats, read and written
};

/// dlogits = logit_scale * inv_valid_tokens * ((1 + 2 z_coef lse) * softmax(z) - onehot(target)); rows that do not
/// count and padded columns are exactly zero. dlogits may be logits itself when the dtypes agree.
struct LossBackward {
  ConstView logits;            ///< [n, V_loc]
  ConstView row_max, row_sum;  ///< [n], over the whole vocabulary
  MutView dlogits;             ///< [n, V_loc] storage dtype, written
  LossShape shape;
  double z_coef = 0;
  ConstView scalars;  ///< StepScalars
};

}  // namespace ashlar
