#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// Selects the attention kernels. kAuto: cuDNN's kernels if cuDNN supports the call, otherwise Ashlar's own kernels.
/// kOwn: always Ashlar's own kernels. kCudnn: always cuDNN's kernels; a call that cuDNN does not support is an error.
enum class AttentionKernels : uint8_t { kAuto, kOwn, kCudnn };
constexpr auto names_of(AttentionKernels) { return enum_names<AttentionKernels>("auto", "own", "cudnn"); }

/// The attention mask: to which keys each query attends. The model's configuration, the op and the kernels use this
/// same struct. Query number t_q of the call has the absolute position i = q_start + t_q, key number t_kv has the
/// absolute position j = kv_start + t_kv. Query i attends to key j iff all of these conditions hold:
///   causal           j <= i
///   window W         causal: i - j < W, i.e. W keys including key i; else |i - j| < W, i.e. W - 1 keys on each side
///   chunk C          floor(j/C) = floor(i/C)
///   documents        j >= doc_start[query i] and, if not causal, j < doc_end[query i]
/// A window, chunk or document field that is not set masks nothing. Kernels skip keys to which no query of a block
/// attends, so with a window the work for T tokens grows with T * W instead of T * T.
/// Sources: causal Vaswani et al. 2017; windows Beltagy et al. 2020 (arXiv:2004.05150); two-sided windows Warner et al.
/// 2024 (arXiv:2412.13663, ModernBERT: local attention of 128 tokens means |i - j| <= 64, that is W = 65).
struct Mask {
  bool causal = true;
  int64_t window = -1;                ///< W > 0; -1 = no window
  int64_t chunk = 0;                  ///< C > 0; 0 = no chunks
  int64_t q_start = 0, kv_start = 0;  ///< absolute positions of the call's first query and first key
  ConstView doc_start{};              ///< [B*T_q] kInt32, first absolute position of each query's document, or absent
  ConstView doc_end{};  ///< [B*T_q] kInt32, one past the last absolute position of each query's document; given with
                        ///< doc_start if not causal, else absent. Within a sample, doc_start and doc_end never
                        ///< decrease.

  bool operator==(const Mask&) const = default;
  auto views() const { return std::tie(doc_start, doc_end); }
  /// Return the first and the last key position to which the query at position i may attend, ignoring documents.
  int64_t first_key(int64_t i) const { return first(i); }
  int64_t last_key(int64_t i) const { return causal ? i : last(i); }
  /// Return the first and the last query position that may attend to the key at position j, ignoring documents.
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

/// The attention score s of a query and a key in head h. The model's configuration, the op and the kernels use this
/// same struct. Terms in brackets are optional, and are applied in this order:
///   s = scale * q.k    [s = softcap * tanh(s / softcap)]    [s -= alibi_h * |i - j|]    [s += t5_bias[bucket][h]]
/// The probability of key j is p_j = exp(s_j) / (sum over keys of exp(s) [+ exp(sink_h)]). t5_buckets has M entries.
/// The bucket of the distance n = i - j is
///   causal           entry min(n, M-1)
///   otherwise        entry n + (M-1)/2, clamped to [0, M-1]; M is odd, and distance 0 is the middle entry
/// A configuration sets only the shapes of the views; each call sets the pointers to their memory.
/// Sources: soft cap Gemma Team 2024 (arXiv:2408.00118) section 2; ALiBi Press et al. 2022 (arXiv:2108.12409); T5 bias
/// Raffel et al. 2020 (arXiv:1910.10683) section 2.1; sinks Agarwal et al. 2025 (arXiv:2508.10925) section 2.
struct ScoreChange {
  double scale = 1;
  double softcap = 0;        ///< 0 = no softcap
  ConstView alibi_slopes{};  ///< [H] accumulate dtype, ALiBi slopes of this rank's heads, or absent
  ConstView sinks{};         ///< [H] storage dtype, attention sinks: for each head, the score of an extra key
                             ///< without a value vector; or absent
  ConstView t5_bias{};       ///< [buckets, H] storage dtype, score of each bucket and head, or absent
  ConstView t5_buckets{};    ///< [M] kInt32, bucket of each distance; given with t5_bias

  bool operator==(const ScoreChange&) const = default;
  auto views() const { return std::tie(alibi_slopes, sinks, t5_bias, t5_buckets); }
};

/// Arguments common to attention forward and backward. With H query heads and G KV heads, query head h reads KV head
/// floor(h*G/H). Query head h of token t of sample b is at q.data + b*q_batch_stride + t*q.stride + h*D. k has the same
/// layout with kv_batch_stride. v has the same layout with v_batch_stride and D_v instead of D. Keys and values may
/// come from the tokens of the queries, from these and earlier tokens (KV cache), or from another sequence
/// (cross-attention).
/// The softmax is computed in the accumulate dtype; then dropout is applied to the probabilities. Before a product on
/// tensor cores, probabilities and score gradients are rounded to the storage dtype.
/// Source: blocked online softmax as Dao et al. 2022 (arXiv:2205.14135) algorithm 1.
struct AttentionShape {
  Mask mask;
  ScoreChange scores;
  int64_t B = 0, T_q = 0, T_kv = 0;
  int64_t H = 0, G = 0, D = 0;  ///< query heads, KV heads (G divides H), head_dim of q and k: 1 to 512
  int64_t D_v = 0;              ///< head_dim of v and out: 1 to 512; 0 = D
  int64_t q_batch_stride = 0;   ///< elements from one sample to the next, in q and dq
  int64_t kv_batch_stride = 0;  ///< elements from one sample to the next, in k and dk
  int64_t v_batch_stride = 0;   ///< elements from one sample to the next, in v and dv; 0 = kv_batch_stride
  DropoutArgs dropout;

  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
  int64_t v_stride() const { return v_batch_stride > 0 ? v_batch_stride : kv_batch_stride; }

  auto views() const { return std::tie(mask, scores, dropout); }
};

struct AttentionForward {
  ConstView q;     ///< [B*T_q, H*D] storage dtype
  ConstView k, v;  ///< [B*T_kv, G*D] and [B*T_kv, G*D_v] storage dtype
  MutView out;     ///< [B*T_q, H*D_v] storage dtype, written; rows of all samples have one stride
  MutView lse;     ///< [B*H*T_q] accumulate dtype, written; log(sum over keys of exp(score) [+ exp(sink)]), index (b*H
                   ///< + h)*T_q + t
  AttentionShape shape;

  auto views() const { return std::tie(q, k, v, out, lse, shape); }
};

/// Gradients of AttentionForward. The call computes delta[b,h,t] = sum over d of out * dout unless `delta` is given.
struct AttentionBackward {
  ConstView dout;      ///< [B*T_q, H*D_v] storage dtype
  ConstView q, k, v;   ///< as in AttentionForward
  ConstView out;       ///< [B*T_q, H*D_v] output of the forward pass
  ConstView lse;       ///< [B*H*T_q] accumulate dtype, output of the forward pass
  ConstView delta;     ///< [B*H*T_q] accumulate dtype, or absent
  MutView dq;          ///< [B*T_q, H*D] storage dtype, strides as q, written or accumulated (mode)
  MutView dk, dv;      ///< shapes and strides as k and v, written or accumulated (mode); summed over the query heads
                       ///< that share a KV head
  MutView dsinks{};    ///< [H] accumulate dtype, written or accumulated (sinks_mode): -sum over b, t of exp(sink_h -
                       ///< lse) * delta; or absent
  MutView dt5_bias{};  ///< [buckets, H] accumulate dtype, written or accumulated (t5_mode): score gradients summed by
                       ///< bucket and head, in an order that does not depend on how the work is split; or absent
  GradMode mode = GradMode::kOverwrite;
  GradMode sinks_mode = GradMode::kAccumulate;
  GradMode t5_mode = GradMode::kAccumulate;
  AttentionShape shape;

  auto views() const { return std::tie(dout, q, k, v, out, lse, delta, dq, dk, dv, dsinks, dt5_bias, shape); }
};

}  // namespace ashlar
