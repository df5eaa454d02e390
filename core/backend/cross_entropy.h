#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// The value that the z-loss squares: log Z, or the largest logit (Baichuan 2).
enum class ZKind : uint8_t { kLse, kMaxLogit };
constexpr auto names_of(ZKind) { return enum_names<ZKind>("lse", "max_logit"); }

/// Sums of the loss over rows, in double. Stored in device memory (struct_of).
struct LossStats {
  double loss = 0;    ///< sum over valid rows of lse - target logit
  double z_loss = 0;  ///< sum over valid rows of z_coef * lse^2, or * (largest logit)^2
  double log_z = 0;   ///< sum over valid rows of lse
  double max_log_z = -1e300;
  double max_logit = -1e300;
  int64_t valid = 0;  ///< rows with target >= 0
};

// Cross-entropy over the vocabulary or a slice of it. For a whole vocabulary it takes three calls: statistics,
// reduction, gradient. If tensor ranks hold slices, there are further steps after the first call: the row maxima are
// reduced (max), the sums of each slice are rescaled from its own maxima to the global ones, and sums and target logits
// are reduced (sum). The z-loss of the largest logit needs one more reduction: the number of columns with the maximum
// is summed over the slices. z = logits * logit_scale, or with a softcap cap * tanh(logits * logit_scale / cap); -inf
// stays -inf. Columns from `valid_cols` on are padding and count as -inf. The backend chooses the dtype of the logits
// (Backend::logits_dtype): storage or accumulate. Row statistics are in the accumulate dtype.

/// Shared by the calls. The slice holds the ids [vocab_begin, vocab_begin + valid_cols).
struct LossShape {
  ConstView targets;  ///< [n] kInt32, global ids; ignore_index (-1): the row is skipped
  int64_t vocab_begin = 0;
  int64_t valid_cols = 0;
  double logit_scale = 1;
  double softcap = 0;  ///< 0 = none

  auto views() const { return std::tie(targets); }
};

/// logits[n, id - vocab_begin] = -inf for each masked id of this slice.
struct LossMask {
  MutView logits;  ///< [n, V_loc]
  ConstView ids;   ///< [M] kInt32, global, each once
  int64_t vocab_begin = 0;

  auto views() const { return std::tie(logits, ids); }
};

/// row_max[n] = max over valid columns of z (-inf without one); row_sum[n] = sum exp(z - row_max[n]) (0 where all are
/// -inf); target_logit[n] = z[target] if this slice holds it, else 0.
struct LossRowStats {
  ConstView logits;                        ///< [n, V_loc]
  MutView row_max, row_sum, target_logit;  ///< [n] accumulate dtype, written
  LossShape shape;

  auto views() const { return std::tie(logits, row_max, row_sum, target_logit, shape); }
};

/// row_sum[n] *= exp(local_max[n] - global_max[n]); a slice without a finite logit keeps its 0.
struct LossRescale {
  ConstView local_max;   ///< [n] accumulate dtype, of this slice
  ConstView global_max;  ///< [n] accumulate dtype, of all slices
  MutView row_sum;       ///< [n] accumulate dtype, read and written

  auto views() const { return std::tie(local_max, global_max, row_sum); }
};

/// max_count[n] = number of valid columns of this slice with z = row_max[n].
struct LossMaxCount {
  ConstView logits;   ///< [n, V_loc]
  ConstView row_max;  ///< [n] accumulate dtype, of all slices
  MutView max_count;  ///< [n] accumulate dtype, written
  LossShape shape;

  auto views() const { return std::tie(logits, row_max, max_count, shape); }
};

/// stats += sums over these rows, from statistics over the whole vocabulary.
struct LossReduce {
  ConstView row_max, row_sum, target_logit;  ///< [n]
  LossShape shape;
  double z_coef = 0;
  ZKind z_kind = ZKind::kLse;
  MutView stats;  ///< LossStats, read and written

  auto views() const { return std::tie(row_max, row_sum, target_logit, shape, stats); }
};

/// dlogits = logit_scale * inv_valid_tokens * slope * ((1 + 2 z_coef lse) * softmax(z) - onehot(target)), slope 1 - (z
/// / cap)^2 with a softcap, else 1. z-loss of the largest logit: instead of 2 z_coef lse * softmax(z), 2 z_coef row_max
/// / max_count in the columns with the maximum. Skipped rows and masked or padded columns are exactly zero. dlogits may
/// be logits itself if the dtypes agree.
struct LossBackward {
  ConstView logits;            ///< [n, V_loc]
  ConstView row_max, row_sum;  ///< [n], over the whole vocabulary
  ConstView max_count;         ///< [n], over the whole vocabulary: the z-loss is of the largest logit; else absent
  MutView dlogits;             ///< [n, V_loc] storage dtype, written
  LossShape shape;
  double z_coef = 0;
  ConstView scalars;  ///< StepScalars

  auto views() const { return std::tie(logits, row_max, row_sum, max_count, dlogits, shape, scalars); }
};

}  // namespace ashlar
