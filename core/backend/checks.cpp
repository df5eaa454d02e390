#include "core/backend/checks.h"

#include <cmath>

namespace ashlar {

void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype) {
  ASHLAR_CHECK(v.data != nullptr || rows * cols == 0, where, ": ", name, " is absent");
  ASHLAR_CHECK(v.rows == rows && v.cols == cols, where, ": ", name, " is [", v.rows, ", ", v.cols, "], expected [",
               rows, ", ", cols, "]");
  ASHLAR_CHECK(v.dtype == dtype, where, ": ", name, " holds ", name_of(v.dtype), ", expected ", name_of(dtype));
  ASHLAR_CHECK(v.rows <= 1 || v.stride >= v.cols, where, ": ", name, " has stride ", v.stride, " below cols ", v.cols);
}

void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype) {
  ASHLAR_CHECK(v.data != nullptr || n == 0, where, ": ", name, " is absent");
  ASHLAR_CHECK(v.size() == n && v.contiguous(), where, ": ", name, " is [", v.rows, ", ", v.cols,
               "], expected a contiguous vector of ", n);
  ASHLAR_CHECK(v.dtype == dtype, where, ": ", name, " holds ", name_of(v.dtype), ", expected ", name_of(dtype));
}

void check_storage(std::string_view where, DType dtype) {
  if (!is_floating(dtype)) {
    throw input_error(where, "storage dtype must be fp32, bf16 or fp64, got ", name_of(dtype));
  }
}

namespace {

/// A view whose own shape and dtype are what others are compared with.
void check_self(std::string_view where, std::string_view name, const ConstView& v) {
  check_view(where, name, v, v.rows, v.cols, v.dtype);
}

void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n) {
  check_vector(where, name, v, n, DType::kInt32);
}

void check_dropout(std::string_view where, const DropoutArgs& a) {
  if (a.p < 0 || a.p >= 1) throw input_error(where, "dropout.p must be in [0, 1), got ", a.p);
  if (a.active()) check_struct<StepScalars>(a.scalars);
}

// Linear.

void check_bias(std::string_view where, std::string_view name, const ConstView& bias, int64_t n, DType storage) {
  if (!bias) return;
  ASHLAR_CHECK(bias.dtype == storage || bias.dtype == accumulate_dtype(storage), where, ": ", name, " holds ",
               name_of(bias.dtype), ", expected ", name_of(storage), " or ", name_of(accumulate_dtype(storage)));
  check_vector(where, name, bias, n, bias.dtype);
}

}  // namespace

void check(const LinearForward& a) {
  constexpr std::string_view kWhere = "linear_forward";
  const DType storage = a.x.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "x", a.x, a.y.rows, a.w.cols, storage);
  check_view(kWhere, "w", a.w, a.y.cols, a.w.cols, storage);
  check_bias(kWhere, "bias", a.bias, a.y.cols, storage);
  ASHLAR_CHECK(a.y.dtype == storage || a.y.dtype == accumulate_dtype(storage), kWhere, ": y holds ", name_of(a.y.dtype),
               ", x ", name_of(storage));
  check_self(kWhere, "y", a.y);
}

void check(const LinearBackwardInput& a) {
  constexpr std::string_view kWhere = "linear_backward_input";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "dy", a.dy, a.dx.rows, a.w.rows, storage);
  check_view(kWhere, "w", a.w, a.w.rows, a.dx.cols, storage);
  ASHLAR_CHECK(a.dx.dtype == storage || a.dx.dtype == accumulate_dtype(storage), kWhere, ": dx holds ",
               name_of(a.dx.dtype), ", dy ", name_of(storage));
  check_self(kWhere, "dx", a.dx);
}

void check(const LinearBackwardWeight& a) {
  constexpr std::string_view kWhere = "linear_backward_weight";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_self(kWhere, "dy", a.dy);
  if (a.dw) {
    check_view(kWhere, "x", a.x, a.dy.rows, a.dw.cols, storage);
    check_view(kWhere, "dw", a.dw, a.dy.cols, a.dw.cols, accumulate_dtype(storage));
  }
  if (a.dbias) check_vector(kWhere, "dbias", a.dbias, a.dy.cols, accumulate_dtype(storage));
}

// Norm. What its calls share: x [N, C], vectors over columns (of a row, or of a head) in storage dtype, statistics over
// rows (of each head) in the accumulate dtype.

namespace {

class NormCheck {
 public:
  NormCheck(std::string_view where, const ConstView& x, int64_t heads = 1) : where_(where), x_(x), heads_(heads) {
    check_storage(where, x.dtype);
    matrix("x", x);
    ASHLAR_CHECK(heads > 0 && x.cols % heads == 0, where, ": heads = ", heads, ", x has ", x.cols, " columns");
  }

  void matrix(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, x_.rows, x_.cols, x_.dtype);
  }
  void parameter(std::string_view name, const ConstView& v) const {
    if (v) check_vector(where_, name, v, gains_of(v), x_.dtype);
  }
  void parameter_grad(std::string_view name, const ConstView& v) const {
    if (v) check_vector(where_, name, v, gains_of(v), accumulate_dtype(x_.dtype));
  }
  /// Of one norm: all shared by the heads, or none.
  void alike(const ConstView& a, const ConstView& b) const {
    if (a && b) ASHLAR_CHECK(a.size() == b.size(), where_, ": gains and biases of ", a.size(), " and ", b.size());
  }
  void statistic(std::string_view name, const ConstView& v) const {
    check_vector(where_, name, v, heads_ * x_.rows, accumulate_dtype(x_.dtype));
  }
  void statistic_if_given(std::string_view name, const ConstView& v) const {
    if (v) statistic(name, v);
  }

 private:
  int64_t gains_of(const ConstView& v) const { return v.size() == x_.cols / heads_ ? v.size() : x_.cols; }

  std::string_view where_;
  const ConstView& x_;
  int64_t heads_;
};

}  // namespace

void check(const NormForward& a) {
  const NormCheck of("norm_forward", a.x, a.heads);
  of.matrix("y", a.y);
  of.parameter("gamma", a.gamma);
  of.parameter("beta", a.beta);
  of.alike(a.gamma, a.beta);
  if (a.variant.type == NormType::kLayerNorm) of.statistic("mean", a.mean);
  of.statistic("rstd", a.rstd);
}

void check(const NormBackward& a) {
  const NormCheck of("norm_backward", a.x, a.heads);
  of.matrix("dy", a.dy);
  if (a.dx_mode != GradMode::kSkip) of.matrix("dx", a.dx);
  of.parameter("gamma", a.gamma);
  if (a.variant.type == NormType::kLayerNorm) of.statistic("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.parameter_grad("dgamma", a.dgamma);
  of.parameter_grad("dbeta", a.dbeta);
  of.alike(a.gamma, a.dgamma);
  of.alike(a.dgamma, a.dbeta);
}

void check(const NormRowStats& a) {
  const NormCheck of("norm_row_stats", a.x);
  of.statistic_if_given("center", a.center);
  of.statistic_if_given("sum", a.sum);
  of.statistic_if_given("sum_squares", a.sum_squares);
}

void check(const NormStatistics& a) {
  constexpr std::string_view kWhere = "norm_statistics";
  ASHLAR_CHECK(bool{a.sum} == bool{a.mean} && bool{a.sum_squares} == bool{a.rstd}, kWhere,
               ": a sum and its statistic are given or absent together");
  ASHLAR_CHECK(a.c_total > 0, kWhere, ": c_total = ", a.c_total);
  const ConstView& first = a.sum ? a.sum : a.sum_squares;
  ASHLAR_CHECK(!first || first.dtype == accumulate_dtype(first.dtype), kWhere, ": sums hold ", name_of(first.dtype));
  for (const auto& [name, view] : {std::pair<std::string_view, ConstView>{"sum", a.sum},
                                   {"mean", a.mean},
                                   {"sum_squares", a.sum_squares},
                                   {"rstd", a.rstd}}) {
    if (view) check_vector(kWhere, name, view, first.size(), first.dtype);
  }
}

void check(const NormApply& a) {
  const NormCheck of("norm_apply", a.x);
  of.matrix("y", a.y);
  of.parameter("gamma", a.gamma);
  of.parameter("beta", a.beta);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
}

void check(const NormBackwardRowSums& a) {
  const NormCheck of("norm_backward_row_sums", a.x);
  of.matrix("dy", a.dy);
  of.parameter("gamma", a.gamma);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.statistic_if_given("sum_h", a.sum_h);
  of.statistic("sum_hx", a.sum_hx);
}

void check(const NormBackwardApply& a) {
  constexpr std::string_view kWhere = "norm_backward_apply";
  const NormCheck of(kWhere, a.x);
  of.matrix("dy", a.dy);
  if (a.dx_mode != GradMode::kSkip) of.matrix("dx", a.dx);
  of.parameter("gamma", a.gamma);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.statistic_if_given("sum_h", a.sum_h);
  of.statistic("sum_hx", a.sum_hx);
  of.parameter_grad("dgamma", a.dgamma);
  of.parameter_grad("dbeta", a.dbeta);
  ASHLAR_CHECK(a.c_total >= a.x.cols, kWhere, ": c_total = ", a.c_total, " below cols = ", a.x.cols);
}

void check(const NormalizeRows& a) {
  constexpr std::string_view kWhere = "normalize_rows";
  check_storage(kWhere, a.w.dtype);
  check_self(kWhere, "w", a.w);
  check_view(kWhere, "y", a.y, a.w.rows, a.w.cols, a.w.dtype);
  check_vector(kWhere, "inverse", a.inverse, a.w.rows, accumulate_dtype(a.w.dtype));
}

void check(const NormalizeRowsBackward& a) {
  constexpr std::string_view kWhere = "normalize_rows_backward";
  check_storage(kWhere, a.w.dtype);
  check_self(kWhere, "w", a.w);
  const DType dtype = accumulate_dtype(a.w.dtype);
  check_view(kWhere, "dy", a.dy, a.w.rows, a.w.cols, dtype);
  check_view(kWhere, "dw", a.dw, a.w.rows, a.w.cols, dtype);
  check_vector(kWhere, "inverse", a.inverse, a.w.rows, dtype);
  ASHLAR_CHECK(a.dw.data != a.dy.data || a.w.size() == 0, kWhere, ": dw is dy");
}

// Activation.

namespace {

template <typename Args>
void check_activation(std::string_view where, const Args& a) {
  ASHLAR_CHECK(a.clamp >= 0, where, ": clamp = ", a.clamp);
  ASHLAR_CHECK(a.up || !a.limited(), where, ": clamp = ", a.clamp, ", linear_offset = ", a.linear_offset,
               " without up");
  check_storage(where, a.x.dtype);
  check_self(where, "x", a.x);
  const bool xielu = a.kind == Activation::kXielu;
  ASHLAR_CHECK(!xielu || !a.up, where, ": xielu has no up");
  ASHLAR_CHECK(xielu || !a.scalars, where, ": scalars are xielu's");
  if (xielu) check_vector(where, "scalars", a.scalars, 2, a.x.dtype);
  if (a.up) check_view(where, "up", a.up, a.x.rows, a.x.cols, a.x.dtype);
}

}  // namespace

void check(const ActivationForward& a) {
  constexpr std::string_view kWhere = "activation_forward";
  check_activation(kWhere, a);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(const ActivationBackward& a) {
  constexpr std::string_view kWhere = "activation_backward";
  check_activation(kWhere, a);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.up) check_view(kWhere, "dup", a.dup, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.scalars || !a.dscalars, kWhere, ": dscalars without scalars");
  if (a.dscalars) check_vector(kWhere, "dscalars", a.dscalars, 2, accumulate_dtype(a.x.dtype));
}

void check(const LinearActivation& a) {
  constexpr std::string_view kWhere = "linear_activation";
  check(a.linear);
  check_view(kWhere, "linear.y", a.linear.y, a.linear.y.rows, a.linear.y.cols, a.linear.x.dtype);
  ASHLAR_CHECK(a.kind != Activation::kXielu, kWhere, ": xielu has scalars, which this call does not take");
  check(ActivationForward{.x = a.linear.y, .up = {}, .y = a.y, .kind = a.kind});
}

void check(const Rope& a) {
  constexpr std::string_view kWhere = "rope";
  const DType storage = a.x.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "x", a.x, a.x.rows, a.heads * a.head_dim, storage);
  check_view(kWhere, "y", a.y, a.x.rows, a.heads * a.head_dim, storage);
  check_ids(kWhere, "positions", a.positions, a.x.rows);
  ASHLAR_CHECK(a.rotated_heads >= 0 && a.rotated_heads <= a.heads, "rotated_heads = ", a.rotated_heads,
               " heads = ", a.heads);
  ASHLAR_CHECK(a.dims >= 0 && a.dims % 2 == 0 && a.dims <= a.head_dim, "dims = ", a.dims, " head_dim = ", a.head_dim);
  ASHLAR_CHECK(a.mode == GradMode::kOverwrite || a.x.data != a.y.data, "y may be x only when overwritten");
  check_view(kWhere, "cos", a.cos, a.cos.rows, a.dims / 2, accumulate_dtype(storage));
  check_view(kWhere, "sin", a.sin, a.cos.rows, a.dims / 2, accumulate_dtype(storage));
}

// Attention.

namespace {

/// A head_dim that a kernel's tiles take.
void check_width(std::string_view where, std::string_view name, int64_t width) {
  if (width >= 1 && width <= 512) return;
  throw input_error(where, "expected ", name, " to be from 1 to 512, got ", width, "; choose another model.head_dim");
}

class AttentionCheck {
 public:
  AttentionCheck(std::string_view where, const AttentionShape& s, DType storage)
      : where_(where), s_(s), storage_(storage) {
    check_storage(where, storage);
    const AttentionVariant& v = s.variant;
    ASHLAR_CHECK(v.window == -1 || v.window > 0, where, ": window = ", v.window, ", expected -1 or more than 0");
    ASHLAR_CHECK(v.chunk >= 0, where, ": chunk = ", v.chunk, ", expected 0 or more");
    ASHLAR_CHECK(v.softcap >= 0 && std::isfinite(v.softcap), where, ": softcap = ", v.softcap, ", expected 0 or more");
    ASHLAR_CHECK(s.B >= 0 && s.T_q >= 0 && s.T_kv >= 0, where, ": B = ", s.B, ", T_q = ", s.T_q, ", T_kv = ", s.T_kv);
    ASHLAR_CHECK(s.T_q < (int64_t{1} << 31) && s.T_kv < (int64_t{1} << 31), where, ": T_q = ", s.T_q,
                 ", T_kv = ", s.T_kv);
    ASHLAR_CHECK(s.q_start + s.T_q < (int64_t{1} << 31) && s.kv_start + s.T_kv < (int64_t{1} << 31), where,
                 ": positions to ", s.q_start + s.T_q, " and ", s.kv_start + s.T_kv);
    ASHLAR_CHECK(s.H > 0 && s.G > 0 && s.H % s.G == 0, where, ": H = ", s.H, ", G = ", s.G);
    check_width(where, "head_dim", s.D);
    check_width(where, "head_dim of values", s.v_dim());
    if (s.doc_start) check_ids(where, "doc_start", s.doc_start, s.B * s.T_q);
    if (s.alibi_slopes) check_vector(where, "alibi_slopes", s.alibi_slopes, s.H, accumulate_dtype(storage));
    if (s.sinks) check_vector(where, "sinks", s.sinks, s.H, storage);
    ASHLAR_CHECK(bool{s.t5_bias} == bool{s.t5_buckets}, where, ": t5_bias and t5_buckets are given or absent together");
    if (s.t5_bias) {
      check_view(where, "t5_bias", s.t5_bias, s.t5_bias.rows, s.H, storage);
      ASHLAR_CHECK(s.t5_bias.rows > 0 && s.t5_buckets.size() > 0, where, ": ", s.t5_bias.rows, " buckets of ",
                   s.t5_buckets.size(), " distances");
      check_ids(where, "t5_buckets", s.t5_buckets, s.t5_buckets.size());
    }
    check_dropout(where, s.dropout);
    if (!s.dropout.active()) return;
    ASHLAR_CHECK(s.q_start + s.T_q <= s.dropout.sequence_length && s.kv_start + s.T_kv <= s.dropout.sequence_length,
                 where, ": dropout sequence_length = ", s.dropout.sequence_length,
                 " is less than a position of this call");
  }

  void queries(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, s_.B * s_.T_q, s_.H * s_.D, storage_);
  }
  void keys(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, s_.B * s_.T_kv, s_.G * s_.D, storage_);
  }
  void values(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, s_.B * s_.T_kv, s_.G * s_.v_dim(), storage_);
  }
  void results(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, s_.B * s_.T_q, s_.H * s_.v_dim(), storage_);
  }
  void statistic(std::string_view name, const ConstView& v) const {
    check_vector(where_, name, v, s_.B * s_.H * s_.T_q, accumulate_dtype(storage_));
  }

 private:
  std::string_view where_;
  const AttentionShape& s_;
  DType storage_;
};

}  // namespace

void check(const AttentionForward& a) {
  const AttentionCheck of("attention_forward", a.shape, a.q.dtype);
  of.queries("q", a.q);
  of.keys("k", a.k);
  of.values("v", a.v);
  of.results("out", a.out);
  of.statistic("lse", a.lse);
}

void check(const AttentionBackward& a) {
  constexpr std::string_view kWhere = "attention_backward";
  const AttentionCheck of(kWhere, a.shape, a.q.dtype);
  of.queries("q", a.q);
  of.keys("k", a.k);
  of.values("v", a.v);
  of.results("dout", a.dout);
  of.statistic("lse", a.lse);
  if (a.delta) {
    of.statistic("delta", a.delta);
  } else {
    of.results("out", a.out);
  }
  if (a.dsinks) {
    ASHLAR_CHECK(a.shape.sinks, kWhere, ": dsinks is wanted, sinks are absent");
    check_vector(kWhere, "dsinks", a.dsinks, a.shape.H, accumulate_dtype(a.q.dtype));
  }
  if (a.dt5_bias) {
    ASHLAR_CHECK(a.shape.t5_bias, kWhere, ": dt5_bias is wanted, t5_bias is absent");
    check_view(kWhere, "dt5_bias", a.dt5_bias, a.shape.t5_bias.rows, a.shape.H, accumulate_dtype(a.q.dtype));
  }
  if (a.dq) of.queries("dq", a.dq);
  ASHLAR_CHECK(bool{a.dk} == bool{a.dv}, kWhere, ": dk and dv are given or absent together");
  if (!a.dk) return;
  of.keys("dk", a.dk);
  of.values("dv", a.dv);
}

void check(const EmbeddingForward& a) {
  constexpr std::string_view kWhere = "embedding_forward";
  check_storage(kWhere, a.table.dtype);
  check_self(kWhere, "table", a.table);
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

// Loss.

namespace {

void check_softcap(std::string_view where, const LossShape& shape) {
  ASHLAR_CHECK(shape.softcap >= 0, where, ": softcap = ", shape.softcap);
}

void check_logits(std::string_view where, const ConstView& logits, const LossShape& shape) {
  check_softcap(where, shape);
  check_storage(where, logits.dtype);
  check_self(where, "logits", logits);
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
  check_storage(kWhere, a.logits.dtype);
  check_self(kWhere, "logits", a.logits);
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

// Elementwise.

void check(const ResidualForward& a) {
  constexpr std::string_view kWhere = "residual_forward";
  check_dropout(kWhere, a.dropout);
  check_storage(kWhere, a.delta.dtype);
  check_self(kWhere, "delta", a.delta);
  check_view(kWhere, "y", a.y, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (a.x) check_view(kWhere, "x", a.x, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (!a.delta2) return;
  check_dropout(kWhere, a.dropout2);
  check_view(kWhere, "delta2", a.delta2, a.delta.rows, a.delta.cols, a.delta.dtype);
}

void check(const ResidualNormForward& a) {
  check(a.residual);
  check(a.norm);
  ASHLAR_CHECK(a.norm.heads == 1, "residual_norm_forward: heads = ", a.norm.heads, ", the norm is of whole rows");
  const ConstView made = a.residual.y, read = a.norm.x;
  ASHLAR_CHECK(made.data == read.data && made.stride == read.stride && made.rows == read.rows,
               "residual_norm_forward: the norm reads another matrix than the residual writes");
}

void check(const DropoutBackward& a) {
  constexpr std::string_view kWhere = "dropout_backward";
  check_dropout(kWhere, a.dropout);
  check_storage(kWhere, a.dy.dtype);
  check_self(kWhere, "dy", a.dy);
  check_view(kWhere, "ddelta", a.ddelta, a.dy.rows, a.dy.cols, a.dy.dtype);
}

void check(const Copy& a) {
  constexpr std::string_view kWhere = "copy";
  check_self(kWhere, "src", a.src);
  check_view(kWhere, "dst", a.dst, a.src.rows, a.src.cols, a.dst.dtype);
  if (a.src.dtype == a.dst.dtype && a.mode == GradMode::kOverwrite) return;  // any dtype may be copied as it is
  check_storage(kWhere, a.src.dtype);
  check_storage(kWhere, a.dst.dtype);
}

void check(const Fill& a) {
  check_self("fill", "dst", a.dst);
  if (is_floating(a.dst.dtype)) return;
  const double highest = a.dst.dtype == DType::kUInt8 ? 0xff : 0x7fffffff,
               lowest = a.dst.dtype == DType::kUInt8 ? 0 : -0x7fffffff;
  ASHLAR_CHECK(std::trunc(a.value) == a.value && a.value >= lowest && a.value <= highest, "fill value ", a.value,
               " is not an integer of the view's dtype");
}

void check(const RandomFill& a) {
  constexpr std::string_view kWhere = "random_fill";
  check_storage(kWhere, a.dst.dtype);
  check_self(kWhere, "dst", a.dst);
  ASHLAR_CHECK(a.cut == 0 || a.cut >= RandomFill::kLeastCut, kWhere, ": cut = ", a.cut, ", expected 0 or at least ",
               RandomFill::kLeastCut);
  ASHLAR_CHECK(a.col_begin + a.dst.cols <= a.global_cols, kWhere, ": col_begin = ", a.col_begin, " cols = ", a.dst.cols,
               " global_cols = ", a.global_cols);
}

void check(const SetStruct& a) { check_vector("set_struct", "dst", a.dst, a.size, DType::kUInt8); }

// Optimizer.

void check_update(std::string_view where, const Update& a, std::span<const ConstView> state) {
  check_struct<StepScalars>(a.scalars);
  check_struct<ClipState>(a.clip);
  const DType dtype = a.master.dtype;
  const int64_t flat = a.grad.size(), packed = state.empty() ? a.master.size() : state.front().size();
  ASHLAR_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat64, where, ": master holds ", name_of(dtype));
  ASHLAR_CHECK(a.segments.dtype == DType::kUInt8, where, ": segments hold ", name_of(a.segments.dtype));
  check_vector(where, "grad", a.grad, flat, dtype);
  for (size_t i = 0; i < state.size(); ++i) check_vector(where, str_cat("state ", i), state[i], packed, dtype);
  check_vector(where, "master", a.master, a.weights ? packed : flat, dtype);
  if (a.weights) {
    check_vector(where, "weights", a.weights, flat, a.weights.dtype);
    ASHLAR_CHECK(accumulate_dtype(a.weights.dtype) == dtype, where, ": weights hold ", name_of(a.weights.dtype),
                 ", master ", name_of(dtype));
  }
}

void check(const SumSquares& a) {
  constexpr std::string_view kWhere = "sum_squares";
  check_storage(kWhere, a.x.dtype);
  check_vector(kWhere, "x", a.x, a.x.size(), a.x.dtype);
  check_vector(kWhere, "partials", a.partials, a.partials.size(), DType::kFloat64);
  check_vector(kWhere, "sums", a.sums, a.sums.size(), DType::kFloat64);
}

void check(const ClipGradients& a) {
  constexpr std::string_view kWhere = "clip_gradients";
  check_struct<ClipState>(a.state);
  check_vector(kWhere, "squares", a.squares, a.squares.size(), DType::kFloat64);
  check_vector(kWhere, "also_finite", a.also_finite, a.also_finite.size(), DType::kFloat64);
  check_vector(kWhere, "kept", a.kept, a.squares.size(), DType::kFloat64);
  ASHLAR_CHECK(a.max_norm >= 0, kWhere, ": max_norm is ", a.max_norm);
}

}  // namespace ashlar
