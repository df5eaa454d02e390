#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// The kernels that compute attention. kAuto: cuDNN if it supports the call, else Ashlar's. kOwn: Ashlar's. kCudnn:
/// cuDNN's; an error if it does not support the call.
enum class AttentionKernels : uint8_t { kAuto, kOwn, kCudnn };
constexpr auto names_of(AttentionKernels) { return enum_names<AttentionKernels>("auto", "own", "cudnn"); }

/// The attention mask: the keys that a query sees. One type from the configuration of a model to the kernels. i =
/// q_start + t_q and j = kv_start + t_kv are absolute positions of a query and a key. Key j is seen iff all of these
/// hold:
///   causal           j <= i
///   window W         causal: i - j < W, the query itself counted; otherwise |i - j| < W, so W - 1 keys on either side
///   chunk C          floor(j/C) = floor(i/C)
///   documents        j >= doc_start and, where not causal, j < doc_end
/// An absent field hides nothing. Keys that no query of a block sees cost nothing: work is T * window, not T * T.
/// Sources: causal Vaswani et al. 2017; windows Beltagy et al. 2020 (arXiv:2004.05150), both sides Warner et al. 2024
/// (arXiv:2412.13663, ModernBERT; its local attention of 128 tokens sees |i - j| <= 64, W = 65).
struct Mask {
  bool causal = true;
  int64_t window = -1;                ///< W > 0; -1 = none
  int64_t chunk = 0;                  ///< C > 0; 0 = none
  int64_t q_start = 0, kv_start = 0;  ///< absolute position of the first query and key
  ConstView doc_start{};              ///< [B*T_q] kInt32, absolute position where the row's document begins, or absent
  ConstView doc_end{};  ///< [B*T_q] kInt32, one past the last position of the document; only with doc_start, and only
                        ///< if not causal. Neither decreases from one query of a sample to the next.

  bool operator==(const Mask&) const = default;
  auto views() const { return std::tie(doc_start, doc_end); }
  /// The first and the last position of a key that the query at position i may see, documents aside.
  int64_t first_key(int64_t i) const { return first(i); }
  int64_t last_key(int64_t i) const { return causal ? i : last(i); }
  /// The first and the last position of a query that may see the key at position j, documents aside.
  int64_t first_query(int64_t j) const { return causal ? j : first(j); }
  int64_t last_query(int64_t j) const { return last(j); }

 private:
  int64_t first(int64_t at) const {
    const int64_t of_window = window > 0 ? at - window + 1 : 0;
    const int64_t of_chunk = chunk > 0 ? at - at % chunk : 0;
    return of_window > of_chunk ? of_window : of_chunk;
  }
  int64_t last(int64_t at) const {
    constexpr int64_t kNever = int64_t{1} << 62;
    const int64_t of_window = window > 0 ? at + window - 1 : kNever;
    const int64_t of_chunk = chunk > 0 ? at - at % chunk + chunk - 1 : kNever;
    return of_window < of_chunk ? of_window : of_chunk;
  }
};

/// The formula of a score; one type from the configuration of a model to the kernels:
///   s = scale * q.k    [s = softcap * tanh(s / softcap)]    [s -= alibi_h * |i - j|]    [s += t5_bias[bucket][h]]
/// and p_j = exp(s_j) / (sum exp(s) [+ exp(sink_h)]). The bucket of distance n = i - j is in t5_buckets, of M entries:
///   causal           entry min(n, M-1)
///   otherwise        entry n + (M-1)/2, at least 0 and at most M-1, M odd: distances of both signs, 0 in the middle
/// A configuration sets only the shapes of the views; their memory is set in a call.
/// Sources: soft cap Gemma Team 2024 (arXiv:2408.00118) section 2; ALiBi Press et al. 2022 (arXiv:2108.12409); T5 bias
/// Raffel et al. 2020 (arXiv:1910.10683) section 2.1; sinks Agarwal et al. 2025 (arXiv:2508.10925) section 2.
struct ScoreChange {
  double scale = 1;
  double softcap = 0;        ///< 0 = none
  ConstView alibi_slopes{};  ///< [H] accumulate dtype, of these heads, or absent
  ConstView sinks{};         ///< [H] storage dtype, a score without a value for each head, or absent
  ConstView t5_bias{};       ///< [buckets, H] storage dtype, a score for each bucket and head, or absent
  ConstView t5_buckets{};    ///< [M] kInt32, with t5_bias

  bool operator==(const ScoreChange&) const = default;
  auto views() const { return std::tie(alibi_slopes, sinks, t5_bias, t5_buckets); }
};

/// Arguments common to attention forward and backward. Query head h reads KV head floor(h*G/H). Row (b, t) of q is at
/// q.data + b*q_batch_stride + t*q.stride + h*D; k is laid out the same way with kv_batch_stride, v with
/// v_batch_stride and heads D_v apart. Keys and values may belong to the tokens of the queries, to earlier tokens too
/// (a cache), or to another source.
/// Softmax in the accumulate dtype, then dropout on the probabilities. Tensor cores multiply probabilities, and the
/// gradients of scores, rounded to the storage dtype.
/// Source: blocked online softmax as Dao et al. 2022 (arXiv:2205.14135) algorithm 1.
struct AttentionShape {
  Mask mask;
  ScoreChange scores;
  int64_t B = 0, T_q = 0, T_kv = 0;
  int64_t H = 0, G = 0, D = 0;  ///< query heads, KV heads (G divides H), head_dim of q and k: 1 to 512
  int64_t D_v = 0;              ///< head_dim of v and out: 1 to 512; 0 = D
  int64_t q_batch_stride = 0;   ///< elements from sample to sample, for q (and dq)
  int64_t kv_batch_stride = 0;  ///< batch stride of k (and dk)
  int64_t v_batch_stride = 0;   ///< batch stride of v (and dv); 0 = kv_batch_stride
  DropoutArgs dropout;

  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
  int64_t v_stride() const { return v_batch_stride > 0 ? v_batch_stride : kv_batch_stride; }

  auto views() const { return std::tie(mask, scores, dropout); }
};

struct AttentionForward {
  ConstView q;     ///< [B*T_q, H*D] storage dtype
  ConstView k, v;  ///< [B*T_kv, G*D] and [B*T_kv, G*D_v] storage dtype
  MutView out;     ///< [B*T_q, H*D_v] storage dtype, written, contiguous over b
  MutView lse;     ///< [B, H, T_q] flat, accumulate dtype, written; log sum exp of the scores and the sink
  AttentionShape shape;

  auto views() const { return std::tie(q, k, v, out, lse, shape); }
};

/// Gradients of AttentionForward. delta[b,h,t] = sum_d out*dout is computed by the call unless it is given.
struct AttentionBackward {
  ConstView dout;      ///< [B*T_q, H*D_v] storage dtype
  ConstView q, k, v;   ///< as in forward
  ConstView out;       ///< [B*T_q, H*D_v] output of the forward pass
  ConstView lse;       ///< [B, H, T_q] output of the forward pass
  ConstView delta;     ///< [B, H, T_q] accumulate dtype, or absent
  MutView dq;          ///< [B*T_q, H*D] storage dtype, strides and batch stride of q, by mode
  MutView dk, dv;      ///< shapes and strides of k and v, by mode; summed over the query heads of a KV head
  MutView dsinks{};    ///< [H] accumulate dtype, by sinks_mode: - sum_{b,t} exp(sink_h - lse) delta; or absent
  MutView dt5_bias{};  ///< [buckets, H] accumulate dtype, by t5_mode: the sum of the gradients of the scores of a
                       ///< bucket and head, in an order that does not depend on how the call is divided; or absent
  GradMode mode = GradMode::kOverwrite;
  GradMode sinks_mode = GradMode::kAccumulate;
  GradMode t5_mode = GradMode::kAccumulate;
  AttentionShape shape;

  auto views() const { return std::tie(dout, q, k, v, out, lse, delta, dq, dk, dv, dsinks, dt5_bias, shape); }
};

}  // namespace ashlar
