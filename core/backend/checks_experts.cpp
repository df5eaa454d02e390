#include "core/backend/checks.h"

namespace ashlar {

namespace {

/// Checks an accumulate dtype: fp32 or fp64.
void check_accumulate(std::string_view where, std::string_view name, const ConstView& v) {
  ASHLAR_CHECK(v.dtype == DType::kFloat32 || v.dtype == DType::kFloat64, where, ": ", name, " holds ", name_of(v.dtype),
               ", expected fp32 or fp64");
  check_self(where, name, v);
}

void check_rule(std::string_view where, const RouterRule& rule, int64_t E, int64_t k) {
  ASHLAR_CHECK(k >= 1 && k <= E, where, ": ", k, " choices of ", E, " experts");
  ASHLAR_CHECK(rule.groups >= 1 && E % rule.groups == 0, where, ": ", E, " experts in ", rule.groups, " groups");
  ASHLAR_CHECK(rule.top_groups >= 1 && rule.top_groups <= rule.groups, where, ": top_groups = ", rule.top_groups,
               " of ", rule.groups);
  ASHLAR_CHECK(rule.top_groups * (E / rule.groups) >= k, where, ": ", k, " choices from ", rule.top_groups,
               " groups of ", E / rule.groups, " experts");
  ASHLAR_CHECK(rule.group_score != GroupScore::kTopTwo || rule.groups == 1 || E / rule.groups >= 2, where,
               ": the two best of a group of one expert");
  ASHLAR_CHECK(rule.sum_floor >= 0 && rule.sum_eps >= 0, where, ": sum_floor = ", rule.sum_floor,
               ", sum_eps = ", rule.sum_eps);
}

void check_scale(std::string_view where, const ConstView& scale, const ConstView& logits) {
  if (!scale) return;
  ASHLAR_CHECK(accumulate_dtype(scale.dtype) == logits.dtype, where, ": expert_scale holds ", name_of(scale.dtype),
               ", logits ", name_of(logits.dtype));
  check_vector(where, "expert_scale", scale, logits.cols, scale.dtype);
}

/// Checks a contiguous matrix of ids [rows, cols].
void check_choices(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols) {
  check_view(where, name, v, rows, cols, DType::kInt32);
  ASHLAR_CHECK(v.contiguous(), where, ": ", name, " has stride ", v.stride, ", expected ", cols);
}

/// Checks weights or dots [rows, cols], which are contiguous.
void check_of_choices(std::string_view where, std::string_view name, const ConstView& v, const ConstView& slots,
                      DType dtype) {
  check_view(where, name, v, slots.rows, slots.cols, dtype);
  ASHLAR_CHECK(v.contiguous(), where, ": ", name, " has stride ", v.stride, ", expected ", slots.cols);
}

void check_offsets(std::string_view where, const ConstView& offsets) {
  ASHLAR_CHECK(offsets.size() >= 2, where, ": ", offsets.size(), " offsets, expected one more than groups");
  check_ids(where, "offsets", offsets, offsets.size());
}

/// Checks a contiguous matrix that holds one matrix for each group.
void check_weight(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                  DType dtype) {
  check_view(where, name, v, rows, cols, dtype);
  ASHLAR_CHECK(v.contiguous(), where, ": ", name, " has stride ", v.stride, ", expected ", cols);
}

int64_t groups_of(const ConstView& offsets) { return offsets.size() - 1; }

}  // namespace

void check(std::string_view where, const RouteForward& a) {
  const int64_t N = a.logits.rows, E = a.logits.cols, k = a.choices.cols;
  check_accumulate(where, "logits", a.logits);
  check_rule(where, a.rule, E, k);
  if (a.selection_bias) check_vector(where, "selection_bias", a.selection_bias, E, a.logits.dtype);
  check_scale(where, a.expert_scale, a.logits);
  if (a.forced) check_choices(where, "forced", a.forced, N, k);
  check_choices(where, "choices", a.choices, N, k);
  check_of_choices(where, "weights", a.weights, a.choices, a.logits.dtype);
}

void check(std::string_view where, const RouteBackward& a) {
  const int64_t N = a.logits.rows, E = a.logits.cols;
  check_accumulate(where, "logits", a.logits);
  check_rule(where, a.rule, E, a.choices.cols);
  check_scale(where, a.expert_scale, a.logits);
  check_choices(where, "choices", a.choices, N, a.choices.cols);
  check_of_choices(where, "dweights", a.dweights, a.choices, a.logits.dtype);
  ASHLAR_CHECK(a.balance_rows >= 1, where, ": balance_rows = ", a.balance_rows);
  if (a.balance) {
    check_view(where, "balance", a.balance, (N + a.balance_rows - 1) / a.balance_rows, E, a.logits.dtype);
  }
  check_view(where, "dlogits", a.dlogits, N, E, a.logits.dtype);
  ASHLAR_CHECK(a.expert_scale || !a.dexpert_scale, where, ": dexpert_scale without expert_scale");
  if (a.dexpert_scale) check_vector(where, "dexpert_scale", a.dexpert_scale, E, a.logits.dtype);
  if (a.scalars) check_struct<StepScalars>(a.scalars);
}

void check(std::string_view where, const RouterStatistics& a) {
  const int64_t N = a.logits.rows, E = a.logits.cols;
  check_accumulate(where, "logits", a.logits);
  check_choices(where, "choices", a.choices, N, a.choices.cols);
  ASHLAR_CHECK(a.sequence_rows >= 1, where, ": sequence_rows = ", a.sequence_rows);
  const int64_t S = (N + a.sequence_rows - 1) / a.sequence_rows;
  check_view(where, "counts", a.counts, S, E, DType::kFloat64);
  check_view(where, "scores", a.scores, S, E, DType::kFloat64);
  if (a.lse_squares) check_vector(where, "lse_squares", a.lse_squares, 1, DType::kFloat64);
  if (a.entropy) check_vector(where, "entropy", a.entropy, 1, DType::kFloat64);
  if (a.all_counts) check_vector(where, "all_counts", a.all_counts, E, DType::kFloat64);
}

void check(std::string_view where, const BalanceLoss& a) {
  const int64_t S = a.scores.rows, E = a.scores.cols;
  check_view(where, "scores", a.scores, S, E, DType::kFloat64);
  check_view(where, "counts", a.counts, a.counts.rows == 1 ? 1 : S, E, DType::kFloat64);
  if (a.balance) {
    check_accumulate(where, "balance", a.balance);
    check_view(where, "balance", a.balance, a.counts.rows, E, a.balance.dtype);
  }
  check_vector(where, "loss", a.loss, 1, DType::kFloat64);
  if (a.scalars) check_struct<StepScalars>(a.scalars);
}

void check(std::string_view where, const BalanceUpdate& a) {
  const int64_t E = a.counts.size();
  check_vector(where, "counts", a.counts, E, DType::kFloat64);
  const auto check_state = [&](std::string_view name, const ConstView& state, DType dtype) {
    if (!state) return;
    check_accumulate(where, name, state);
    check_vector(where, name, state, E, dtype);
  };
  check_state("selection_bias", a.selection_bias, a.selection_bias.dtype);
  check_state("previous_counts", a.previous_counts,
              a.selection_bias ? a.selection_bias.dtype : a.previous_counts.dtype);
  check_struct<ClipState>(a.clip);
}

void check(std::string_view where, const SortChoices& a) {
  check_choices(where, "choices", a.choices, a.choices.rows, a.choices.cols);
  check_offsets(where, a.offsets);
  check_choices(where, "slots", a.slots, a.choices.rows, a.choices.cols);
  ASHLAR_CHECK(a.first_expert >= 0, where, ": first_expert = ", a.first_expert);
}

void check(std::string_view where, const DispatchRows& a) {
  const DType storage = a.x.dtype;
  check_storage(where, "x", a.x);
  check_choices(where, "slots", a.slots, a.x.rows, a.slots.cols);
  check_offsets(where, a.offsets);
  if (a.weights) check_of_choices(where, "weights", a.weights, a.slots, accumulate_dtype(storage));
  check_view(where, "rows", a.rows, a.rows.rows, a.x.cols, storage);
  ASHLAR_CHECK(bool(a.others) == bool(a.dots), where, ": expected others and dots together");
  if (!a.others) return;
  check_view(where, "others", a.others, a.rows.rows, a.x.cols, storage);
  check_of_choices(where, "dots", a.dots, a.slots, accumulate_dtype(storage));
}

void check(std::string_view where, const CombineRows& a) {
  const DType storage = a.rows.dtype;
  check_storage(where, "rows", a.rows);
  check_choices(where, "slots", a.slots, a.y.rows, a.slots.cols);
  if (a.weights) check_of_choices(where, "weights", a.weights, a.slots, accumulate_dtype(storage));
  check_view(where, "y", a.y, a.y.rows, a.rows.cols, storage);
  ASHLAR_CHECK(bool(a.others) == bool(a.dots), where, ": expected others and dots together");
  if (!a.others) return;
  check_view(where, "others", a.others, a.y.rows, a.rows.cols, storage);
  check_of_choices(where, "dots", a.dots, a.slots, accumulate_dtype(storage));
}

void check(std::string_view where, const GroupedLinearForward& a) {
  const DType storage = a.x.dtype;
  check_storage(where, "x", a.x);
  check_offsets(where, a.offsets);
  check_weight(where, "w", a.w, groups_of(a.offsets) * a.y.cols, a.x.cols, storage);
  if (a.bias) check_vector(where, "bias", a.bias, groups_of(a.offsets) * a.y.cols, storage);
  check_view(where, "y", a.y, a.x.rows, a.y.cols, storage);
}

void check(std::string_view where, const GroupedLinearBackwardInput& a) {
  const DType storage = a.dy.dtype;
  check_storage(where, "dy", a.dy);
  check_offsets(where, a.offsets);
  check_weight(where, "w", a.w, groups_of(a.offsets) * a.dy.cols, a.dx.cols, storage);
  check_view(where, "dx", a.dx, a.dy.rows, a.dx.cols, storage);
}

void check(std::string_view where, const GroupedLinearBackwardWeight& a) {
  const DType storage = a.dy.dtype;
  check_storage(where, "dy", a.dy);
  check_offsets(where, a.offsets);
  const int64_t rows = groups_of(a.offsets) * a.dy.cols;
  if (a.dw) {
    check_view(where, "x", a.x, a.dy.rows, a.dw.cols, storage);
    check_weight(where, "dw", a.dw, rows, a.dw.cols, accumulate_dtype(storage));
  }
  if (a.dbias) check_vector(where, "dbias", a.dbias, rows, accumulate_dtype(storage));
}

}  // namespace ashlar
