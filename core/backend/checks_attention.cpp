#include "core/backend/checks.h"

#include <cmath>

namespace ashlar {

namespace {

/// The widths of a head that the kernels' tiles support.
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
    ASHLAR_CHECK(bool{s.t5_bias} == bool{s.t5_buckets}, where, ": expected t5_bias and t5_buckets both, or neither");
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
  ASHLAR_CHECK(bool{a.dk} == bool{a.dv}, kWhere, ": expected dk and dv both, or neither");
  if (!a.dk) return;
  of.keys("dk", a.dk);
  of.values("dv", a.dv);
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

void check(const ConcatSharedHead& a) {
  constexpr std::string_view kWhere = "concat_shared_head";
  const DType storage = a.y.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "y", a.y, a.y.rows, a.y.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "shared", a.shared, a.y.rows, a.shared.cols, storage);
  check_view(kWhere, "own", a.own, a.y.rows, a.y.cols - a.heads * a.shared.cols, storage);
  ASHLAR_CHECK(a.own.cols % a.heads == 0, kWhere, ": own has ", a.own.cols, " columns for ", a.heads, " heads");
}

void check(const ConcatSharedHeadBackward& a) {
  constexpr std::string_view kWhere = "concat_shared_head_backward";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "dy", a.dy, a.dy.rows, a.dy.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "dshared", a.dshared, a.dy.rows, a.dshared.cols, storage);
  check_view(kWhere, "down", a.down, a.dy.rows, a.dy.cols - a.heads * a.dshared.cols, storage);
  ASHLAR_CHECK(a.down.cols % a.heads == 0, kWhere, ": down has ", a.down.cols, " columns for ", a.heads, " heads");
}

}  // namespace ashlar
