#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn {

namespace {

Rows rows_of(const ConstView& view, int64_t batch) { return {.batch = batch, .row = view.stride}; }

/// The frontend takes what a graph reads and what it writes alike.
void* address(const ConstView& view) { return const_cast<void*>(view.data); }

/// What forward and backward say alike.
template <typename Args>
AttentionCase common_case(const Args& a) {
  const AttentionShape& s = a.shape;
  return {.B = s.B,
          .T = s.T_q,
          .H = s.H,
          .G = s.G,
          .D = s.D,
          .scale = s.variant.scale,
          .q = rows_of(a.q, s.q_batch_stride),
          .k = rows_of(a.k, s.kv_batch_stride),
          .v = rows_of(a.v, s.kv_batch_stride),
          .out = rows_of(a.out, s.T_q * a.out.stride)};
}

}  // namespace

AttentionCase case_of(const AttentionForward& a) { return common_case(a); }

AttentionCase case_of(const AttentionBackward& a) {
  const AttentionShape& s = a.shape;
  AttentionCase c = common_case(a);
  c.backward = true;
  c.dout = rows_of(a.dout, s.T_q * a.dout.stride);
  c.dq = rows_of(a.dq, s.q_batch_stride);
  c.dk = rows_of(a.dk, s.kv_batch_stride);
  c.dv = rows_of(a.dv, s.kv_batch_stride);
  return c;
}

AttentionArrays arrays_of(const AttentionForward& a) {
  return {.q = address(a.q), .k = address(a.k), .v = address(a.v), .out = a.out.data, .lse = a.lse.data};
}

AttentionArrays arrays_of(const AttentionBackward& a) {
  return {.q = address(a.q),
          .k = address(a.k),
          .v = address(a.v),
          .out = address(a.out),
          .lse = address(a.lse),
          .dout = address(a.dout),
          .dq = a.dq.data,
          .dk = a.dk.data,
          .dv = a.dv.data};
}

}  // namespace ashlar::cudnn
