#include "core/backend/checks.h"

namespace ashlar {

namespace {

void check_softcap(std::string_view where, const LossShape& shape) {
  ASHLAR_CHECK(shape.softcap >= 0, where, ": softcap = ", shape.softcap);
}

void check_logits(std::string_view where, const ConstView& logits, const LossShape& shape) {
  check_softcap(where, shape);
  check_storage(where, "logits", logits);
  ASHLAR_CHECK(shape.valid_cols >= 0 && shape.valid_cols <= logits.cols, where, ": valid_cols = ", shape.valid_cols,
               " cols = ", logits.cols);
  check_ids(where, "targets", shape.targets, logits.rows);
}

}  // namespace

void check(const LossRowStats& a) {
  constexpr std::string_view kWhere = "loss_row_stats";
  check_logits(kWhere, a.logits, a.shape);
  const DType dtype = accumulate_dtype(a.logits.dtype);
  check_vector(kWhere, "row_max", a.row_max, a.logits.rows, dtype);
  check_vector(kWhere, "row_sum", a.row_sum, a.logits.rows, dtype);
  check_vector(kWhere, "target_logit", a.target_logit, a.logits.rows, dtype);
}

void check(const LossMask& a) {
  constexpr std::string_view kWhere = "loss_mask";
  check_storage(kWhere, "logits", a.logits);
  check_ids(kWhere, "ids", a.ids, a.ids.size());
}

void check(const LossMaxCount& a) {
  constexpr std::string_view kWhere = "loss_max_count";
  check_logits(kWhere, a.logits, a.shape);
  check_vector(kWhere, "row_max", a.row_max, a.logits.rows, accumulate_dtype(a.logits.dtype));
  check_vector(kWhere, "max_count", a.max_count, a.logits.rows, accumulate_dtype(a.logits.dtype));
}

void check(const LossRescale& a) {
  constexpr std::string_view kWhere = "loss_rescale";
  const DType dtype = accumulate_dtype(a.row_sum.dtype);
  check_vector(kWhere, "row_sum", a.row_sum, a.row_sum.size(), dtype);
  check_vector(kWhere, "local_max", a.local_max, a.row_sum.size(), dtype);
  check_vector(kWhere, "global_max", a.global_max, a.row_sum.size(), dtype);
}

void check(const LossReduce& a) {
  constexpr std::string_view kWhere = "loss_reduce";
  check_softcap(kWhere, a.shape);
  const DType dtype = accumulate_dtype(a.row_max.dtype);
  check_vector(kWhere, "row_max", a.row_max, a.row_max.size(), dtype);
  check_vector(kWhere, "row_sum", a.row_sum, a.row_max.size(), dtype);
  check_vector(kWhere, "target_logit", a.target_logit, a.row_max.size(), dtype);
  check_ids(kWhere, "targets", a.shape.targets, a.row_max.size());
  check_struct<LossStats>(a.stats);
}

void check(const LossBackward& a) {
  constexpr std::string_view kWhere = "loss_backward";
  check_logits(kWhere, a.logits, a.shape);
  const DType dtype = accumulate_dtype(a.logits.dtype);
  check_vector(kWhere, "row_max", a.row_max, a.logits.rows, dtype);
  check_vector(kWhere, "row_sum", a.row_sum, a.logits.rows, dtype);
  if (a.max_count) check_vector(kWhere, "max_count", a.max_count, a.logits.rows, dtype);
  ASHLAR_CHECK(accumulate_dtype(a.dlogits.dtype) == dtype, kWhere, ": dlogits hold ", name_of(a.dlogits.dtype),
               ", logits ", name_of(a.logits.dtype));
  check_view(kWhere, "dlogits", a.dlogits, a.logits.rows, a.logits.cols, a.dlogits.dtype);
  check_struct<StepScalars>(a.scalars);
}

void check(const EmbeddingForward& a) {
  constexpr std::string_view kWhere = "embedding_forward";
  check_storage(kWhere, "table", a.table);
  check_view(kWhere, "out", a.out, a.out.rows, a.table.cols, a.table.dtype);
  check_ids(kWhere, "ids", a.ids, a.out.rows);
}

void check(const EmbeddingBackward& a) {
  constexpr std::string_view kWhere = "embedding_backward";
  check_storage(kWhere, a.dy.dtype);
  check_view(kWhere, "dy", a.dy, a.dy.rows, a.dtable.cols, a.dy.dtype);
  check_view(kWhere, "dtable", a.dtable, a.dtable.rows, a.dtable.cols, accumulate_dtype(a.dy.dtype));
  check_ids(kWhere, "ids", a.ids, a.dy.rows);
  check_ids(kWhere, "order", a.order, a.dy.rows);
}

}  // namespace ashlar
