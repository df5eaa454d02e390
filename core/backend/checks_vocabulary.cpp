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

void check(std::string_view where, const LossRowStats& a) {
  check_logits(where, a.logits, a.shape);
  const DType dtype = accumulate_dtype(a.logits.dtype);
  check_vector(where, "row_max", a.row_max, a.logits.rows, dtype);
  check_vector(where, "row_sum", a.row_sum, a.logits.rows, dtype);
  check_vector(where, "target_logit", a.target_logit, a.logits.rows, dtype);
}

void check(std::string_view where, const LossMask& a) {
  check_storage(where, "logits", a.logits);
  check_ids(where, "ids", a.ids, a.ids.size());
}

void check(std::string_view where, const LossMaxCount& a) {
  check_logits(where, a.logits, a.shape);
  check_vector(where, "row_max", a.row_max, a.logits.rows, accumulate_dtype(a.logits.dtype));
  check_vector(where, "max_count", a.max_count, a.logits.rows, accumulate_dtype(a.logits.dtype));
}

void check(std::string_view where, const LossRescale& a) {
  const DType dtype = accumulate_dtype(a.row_sum.dtype);
  check_vector(where, "row_sum", a.row_sum, a.row_sum.size(), dtype);
  check_vector(where, "local_max", a.local_max, a.row_sum.size(), dtype);
  check_vector(where, "global_max", a.global_max, a.row_sum.size(), dtype);
}

void check(std::string_view where, const LossReduce& a) {
  check_softcap(where, a.shape);
  const DType dtype = accumulate_dtype(a.row_max.dtype);
  check_vector(where, "row_max", a.row_max, a.row_max.size(), dtype);
  check_vector(where, "row_sum", a.row_sum, a.row_max.size(), dtype);
  check_vector(where, "target_logit", a.target_logit, a.row_max.size(), dtype);
  check_ids(where, "targets", a.shape.targets, a.row_max.size());
  check_struct<LossStats>(a.stats);
}

void check(std::string_view where, const LossBackward& a) {
  check_logits(where, a.logits, a.shape);
  const DType dtype = accumulate_dtype(a.logits.dtype);
  check_vector(where, "row_max", a.row_max, a.logits.rows, dtype);
  check_vector(where, "row_sum", a.row_sum, a.logits.rows, dtype);
  if (a.max_count) check_vector(where, "max_count", a.max_count, a.logits.rows, dtype);
  ASHLAR_CHECK(accumulate_dtype(a.dlogits.dtype) == dtype, where, ": dlogits hold ", name_of(a.dlogits.dtype),
               ", logits ", name_of(a.logits.dtype));
  check_view(where, "dlogits", a.dlogits, a.logits.rows, a.logits.cols, a.dlogits.dtype);
  check_struct<StepScalars>(a.scalars);
}

void check(std::string_view where, const LossStatsAndGrad& a) {
  check(where, a.stats());
  check(where, a.grad());
}

void check(std::string_view where, const EmbeddingForward& a) {
  check_storage(where, "table", a.table);
  check_view(where, "out", a.out, a.out.rows, a.table.cols, a.table.dtype);
  check_ids(where, "ids", a.ids, a.out.rows);
}

void check(std::string_view where, const EmbeddingBackward& a) {
  check_storage(where, a.dy.dtype);
  check_view(where, "dy", a.dy, a.dy.rows, a.dtable.cols, a.dy.dtype);
  check_view(where, "dtable", a.dtable, a.dtable.rows, a.dtable.cols, accumulate_dtype(a.dy.dtype));
  check_ids(where, "ids", a.ids, a.dy.rows);
  check_ids(where, "order", a.order, a.dy.rows);
}

}  // namespace ashlar
