#include "core/backend/checks.h"

#include <cmath>

namespace ashlar {

namespace {

/// Throws an input_error unless the kernels support heads of this width.
void check_width(std::string_view where, std::string_view name, int64_t width) {
  if (width >= 1 && width <= 512) return;
  throw input_error(where, "expected ", name, " to be from 1 to 512, got ", width,
                    "; set model.head_dim, attn.v_head_dim or attn.global_head_dim to at most 512");
}

class AttentionCheck {
 public:
  AttentionCheck(std::string_view where, const AttentionShape& s, DType storage)
      : where_(where), s_(s), storage_(storage) {
    check_storage(where, storage);
    check_sizes();
    check_mask(s.mask);
    check_scores(s.scores);
    check_dropout(where, s.dropout);
    if (!s.dropout.active()) return;
    const int64_t length = s.dropout.sequence_length;
    ASHLAR_CHECK(s.mask.q_start + s.T_q <= length && s.mask.kv_start + s.T_kv <= length, where,
                 ": dropout sequence_length = ", length, " is less than a position of this call");
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
  void check_sizes() const {
    ASHLAR_CHECK(s_.B >= 0 && s_.T_q >= 0 && s_.T_kv >= 0, where_, ": B = ", s_.B, ", T_q = ", s_.T_q,
                 ", T_kv = ", s_.T_kv);
    ASHLAR_CHECK(s_.T_q + s_.T_kv < (int64_t{1} << 31), where_, ": T_q = ", s_.T_q, ", T_kv = ", s_.T_kv);
    ASHLAR_CHECK(s_.H > 0 && s_.G > 0 && s_.H % s_.G == 0, where_, ": H = ", s_.H, ", G = ", s_.G);
    check_width(where_, "head_dim", s_.D);
    check_width(where_, "head_dim of values", s_.v_dim());
  }
  void check_mask(const Mask& m) const {
    ASHLAR_CHECK(m.window == -1 || m.window > 0, where_, ": window = ", m.window, ", expected -1 or more than 0");
    ASHLAR_CHECK(m.chunk >= 0, where_, ": chunk = ", m.chunk, ", expected 0 or more");
    ASHLAR_CHECK(m.q_start >= 0 && m.q_start + s_.T_q < (int64_t{1} << 31) && m.kv_start >= 0 &&
                     m.kv_start + s_.T_kv < (int64_t{1} << 31),
                 where_, ": positions from ", m.q_start, " to ", m.q_start + s_.T_q, " and from ", m.kv_start, " to ",
                 m.kv_start + s_.T_kv);
    const bool ends = m.doc_end.size() > 0;
    ASHLAR_CHECK(ends == (m.doc_start.size() > 0 && !m.causal), where_, ": doc_end is ", ends ? "given" : "absent",
                 ", expected it with doc_start where attention is not causal, and there alone");
    if (m.doc_start.size() > 0) check_vector(where_, "doc_start", m.doc_start, s_.B * s_.T_q, DType::kInt32);
    if (ends) check_vector(where_, "doc_end", m.doc_end, s_.B * s_.T_q, DType::kInt32);
  }
  void check_scores(const ScoreChange& c) const {
    ASHLAR_CHECK(c.softcap >= 0 && std::isfinite(c.softcap), where_, ": softcap = ", c.softcap, ", expected 0 or more");
    if (c.alibi_slopes.size() > 0)
      check_vector(where_, "alibi_slopes", c.alibi_slopes, s_.H, accumulate_dtype(storage_));
    if (c.sinks.size() > 0) check_vector(where_, "sinks", c.sinks, s_.H, storage_);
    const int64_t distances = c.t5_buckets.size();
    ASHLAR_CHECK((c.t5_bias.size() > 0) == (distances > 0), where_,
                 ": expected t5_bias and t5_buckets both, or neither");
    if (distances == 0) return;
    check_view(where_, "t5_bias", c.t5_bias, c.t5_bias.rows, s_.H, storage_);
    check_vector(where_, "t5_buckets", c.t5_buckets, distances, DType::kInt32);
    ASHLAR_CHECK(s_.mask.causal || distances % 2 == 1, where_, ": t5_buckets has ", distances,
                 " entries, expected an odd number where attention is not causal: distances of both signs");
  }

  std::string_view where_;
  const AttentionShape& s_;
  DType storage_;
};

}  // namespace

void check(std::string_view where, const AttentionForward& a) {
  const AttentionCheck of(where, a.shape, a.q.dtype);
  of.queries("q", a.q);
  of.keys("k", a.k);
  of.values("v", a.v);
  of.results("out", a.out);
  of.statistic("lse", a.lse);
}

void check(std::string_view where, const AttentionBackward& a) {
  const AttentionCheck of(where, a.shape, a.q.dtype);
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
    ASHLAR_CHECK(a.shape.scores.sinks, where, ": dsinks is wanted, sinks are absent");
    check_vector(where, "dsinks", a.dsinks, a.shape.H, accumulate_dtype(a.q.dtype));
  }
  if (a.dt5_bias) {
    ASHLAR_CHECK(a.shape.scores.t5_bias, where, ": dt5_bias is wanted, t5_bias is absent");
    check_view(where, "dt5_bias", a.dt5_bias, a.shape.scores.t5_bias.rows, a.shape.H, accumulate_dtype(a.q.dtype));
  }
  if (a.dq) of.queries("dq", a.dq);
  ASHLAR_CHECK(bool{a.dk} == bool{a.dv}, where, ": expected dk and dv both, or neither");
  if (!a.dk) return;
  of.keys("dk", a.dk);
  of.values("dv", a.dv);
}

void check(std::string_view where, const Rope& a) {
  const DType storage = a.x.dtype;
  check_storage(where, storage);
  check_view(where, "x", a.x, a.x.rows, a.heads * a.head_dim, storage);
  check_view(where, "y", a.y, a.x.rows, a.heads * a.head_dim, storage);
  check_ids(where, "positions", a.positions, a.x.rows);
  ASHLAR_CHECK(a.rotated_heads >= 0 && a.rotated_heads <= a.heads, "rotated_heads = ", a.rotated_heads,
               " heads = ", a.heads);
  ASHLAR_CHECK(a.dims >= 0 && a.dims % 2 == 0 && a.dims <= a.head_dim, "dims = ", a.dims, " head_dim = ", a.head_dim);
  ASHLAR_CHECK(a.mode == GradMode::kOverwrite || a.x.data != a.y.data, "y may be x only when overwritten");
  check_view(where, "cos", a.cos, a.cos.rows, a.dims / 2, accumulate_dtype(storage));
  check_view(where, "sin", a.sin, a.cos.rows, a.dims / 2, accumulate_dtype(storage));
}

void check(std::string_view where, const ConcatSharedHead& a) {
  const DType storage = a.y.dtype;
  check_storage(where, "y", a.y);
  ASHLAR_CHECK(a.heads > 0, where, ": heads = ", a.heads);
  check_view(where, "shared", a.shared, a.y.rows, a.shared.cols, storage);
  check_view(where, "own", a.own, a.y.rows, a.y.cols - a.heads * a.shared.cols, storage);
  ASHLAR_CHECK(a.own.cols % a.heads == 0, where, ": own has ", a.own.cols, " columns for ", a.heads, " heads");
}

void check(std::string_view where, const ConcatSharedHeadBackward& a) {
  const DType storage = a.dy.dtype;
  check_storage(where, "dy", a.dy);
  ASHLAR_CHECK(a.heads > 0, where, ": heads = ", a.heads);
  check_view(where, "dshared", a.dshared, a.dy.rows, a.dshared.cols, storage);
  check_view(where, "down", a.down, a.dy.rows, a.dy.cols - a.heads * a.dshared.cols, storage);
  ASHLAR_CHECK(a.down.cols % a.heads == 0, where, ": down has ", a.down.cols, " columns for ", a.heads, " heads");
}

}  // namespace ashlar
