#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// The value that the z-loss squares: the log-sum-exp of the logits (lse), or the largest logit (Baichuan 2).
enum class ZKind : uint8_t { kLse, kMaxLogit };
constexpr auto names_of(ZKind) { return enum_names<ZKind>("lse", "max_logit"); }

/// Loss statistics over rows, in double. They are stored in device memory (struct_of). lse is the log-sum-exp of a
/// row's logits.
struct LossStats {
  double loss = 0;    ///< sum over valid rows of (lse - target logit)
  double z_loss = 0;  ///< sum over valid rows of z_coef * lse^2 or z_coef * (largest logit)^2, as ZKind selects
  double log_z = 0;   ///< sum over valid rows of lse
  double max_log_z = -1e300;
  double max_logit = -1e300;
  int64_t valid = 0;  ///< number of rows with target >= 0
};

// Cross-entropy over the vocabulary, or over this rank's slice of it. If a rank has the whole vocabulary, three calls
// compute the loss and the gradient of the logits: LossRowStats, LossReduce, LossBackward; LossStatsAndGrad is the
// first and the last of them in one, if the z-loss does not square the largest logit. If tensor ranks have slices of
// the vocabulary, three steps come after LossRowStats: an all-reduce (max) of the row maxima; LossRescale, which
// rescales each slice's row sums from the slice's maxima to the global maxima; an all-reduce (sum) of row sums and
// target logits. If the z-loss squares the largest logit, LossMaxCount counts the columns with the maximum before the
// all-reduce (sum), which then also adds the counts of the slices.
// In the formulas, z = logits * logit_scale or, with a softcap, z = softcap * tanh(logits * logit_scale / softcap). A
// logit of -inf stays -inf. Columns from `valid_cols` on are padding and count as -inf. Logits have the dtype that the
// backend chooses (Backend::logits_dtype), storage or accumulate. Row statistics have the accumulate dtype.

/// Arguments that the loss calls share. The columns of this rank's logits are the ids [vocab_begin, vocab_begin +
/// valid_cols), followed by padding.
struct LossShape {
  ConstView targets;  ///< [n] kInt32, global ids; a row with -1 (ignore_index) is skipped
  int64_t vocab_begin = 0;
  int64_t valid_cols = 0;
  double logit_scale = 1;
  double softcap = 0;  ///< 0 = no softcap

  auto views() const { return std::tie(targets); }
};

/// logits[n, id - vocab_begin] = -inf for each masked id of this slice.
struct LossMask {
  MutView logits;  ///< [n, V_loc], with V_loc the columns of this slice; read and written
  ConstView ids;   ///< [M] kInt32, distinct global ids
  int64_t vocab_begin = 0;

  auto views() const { return std::tie(logits, ids); }
};

/// Per row n of the logits: row_max[n] = maximum of z over the valid columns (-inf if there are none); row_sum[n] = sum
/// of exp(z - row_max[n]) over the valid columns (0 if every z is -inf); target_logit[n] = z[target] if the target is
/// in this slice, else 0.
struct LossRowStats {
  ConstView logits;                        ///< [n, V_loc], with V_loc the columns of this slice
  MutView row_max, row_sum, target_logit;  ///< [n] accumulate dtype, written (formulas above)
  LossShape shape;

  auto views() const { return std::tie(logits, row_max, row_sum, target_logit, shape); }
};

/// row_sum[n] *= exp(local_max[n] - global_max[n]); the row sum of a slice without a finite logit stays 0.
struct LossRescale {
  ConstView local_max;   ///< [n] accumulate dtype, row maxima of this slice
  ConstView global_max;  ///< [n] accumulate dtype, row maxima over all slices
  MutView row_sum;       ///< [n] accumulate dtype, read and written

  auto views() const { return std::tie(local_max, global_max, row_sum); }
};

/// max_count[n] = number of valid columns of this slice whose z equals row_max[n].
struct LossMaxCount {
  ConstView logits;   ///< [n, V_loc], with V_loc the columns of this slice
  ConstView row_max;  ///< [n] accumulate dtype, row maxima over all slices
  MutView max_count;  ///< [n] accumulate dtype, written
  LossShape shape;

  auto views() const { return std::tie(logits, row_max, max_count, shape); }
};

/// Adds the loss statistics of these rows to `stats`. row_max, row_sum and target_logit must cover the whole
/// vocabulary.
struct LossReduce {
  ConstView row_max, row_sum, target_logit;  ///< [n] accumulate dtype, over the whole vocabulary
  LossShape shape;
  double z_coef = 0;
  ZKind z_kind = ZKind::kLse;
  MutView stats;  ///< LossStats in device memory, read and written

  auto views() const { return std::tie(row_max, row_sum, target_logit, shape, stats); }
};

/// dlogits = logit_scale * inv_valid_tokens * slope * ((1 + 2 z_coef lse) * softmax(z) - onehot(target)), where slope
/// is 1 - (z / softcap)^2 with a softcap, else 1. If the z-loss squares the largest logit, the term 2 z_coef lse *
/// softmax(z) is replaced: it is 2 z_coef row_max / max_count in the columns with the maximum, and 0 in all others.
/// dlogits is exactly zero in skipped rows and in masked or padded columns. dlogits may use the memory of `logits` if
/// both have the same dtype.
struct LossBackward {
  ConstView logits;            ///< [n, V_loc], with V_loc the columns of this slice
  ConstView row_max, row_sum;  ///< [n] accumulate dtype, over the whole vocabulary
  ConstView max_count;         ///< [n], over the whole vocabulary; given if the z-loss squares the largest logit, else
                               ///< absent
  MutView dlogits;             ///< [n, V_loc] storage dtype, written
  LossShape shape;
  double z_coef = 0;
  ConstView scalars;  ///< StepScalars in device memory

  auto views() const { return std::tie(logits, row_max, row_sum, max_count, dlogits, shape, scalars); }
};

/// LossRowStats and then LossBackward without a max_count, with the bits of the two calls. A backend that keeps a row
/// between the two reads the logits from memory once.
struct LossStatsAndGrad {
  ConstView logits;                        ///< [n, V], the whole vocabulary
  MutView row_max, row_sum, target_logit;  ///< [n] accumulate dtype, written
  MutView dlogits;                         ///< [n, V] storage dtype, written; may use the memory of `logits`
  LossShape shape;
  double z_coef = 0;
  ConstView scalars;  ///< StepScalars in device memory

  LossRowStats stats() const {
    return {.logits = logits, .row_max = row_max, .row_sum = row_sum, .target_logit = target_logit, .shape = shape};
  }
  LossBackward grad() const {
    return {.logits = logits,
            .row_max = row_max,
            .row_sum = row_sum,
            .max_count = {},
            .dlogits = dlogits,
            .shape = shape,
            .z_coef = z_coef,
            .scalars = scalars};
  }
  auto views() const { return std::tie(logits, row_max, row_sum, target_logit, dlogits, shape, scalars); }
};

}  // namespace ashlar
