#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// Which kernels compute attention. kAuto: cuDNN's where they serve the call, else our own. kCudnn: else an error.
enum class AttentionKernels : uint8_t { kAuto, kOwn, kCudnn };
inline constexpr EnumName<AttentionKernels> kAttentionKernelsNames[] = {
    {AttentionKernels::kAuto, "auto"}, {AttentionKernels::kOwn, "own"}, {AttentionKernels::kCudnn, "cudnn"}};
constexpr std::span<const EnumName<AttentionKernels>> names_of(AttentionKernels) { return kAttentionKernelsNames; }

/// Which attention it is: what a layer has of it, for its op and the kernels.
struct AttentionVariant {
  double scale = 1;     ///< factor on q.k
  double softcap = 0;   ///< s -> softcap * tanh(s / softcap); 0 = none
  int64_t window = -1;  ///< W > 0: keys i-W+1 to i, the query itself counted; -1 = full
  int64_t chunk = 0;    ///< C > 0: only keys of the query's own chunk, floor(j/C) = floor(i/C); 0 = none
  bool operator==(const AttentionVariant&) const = default;
};

/// What attention forward and backward share. Query head h reads KV head floor(h*G/H). Row (b, t) of q is at
/// q.data + b*q_batch_stride + t*q.stride + h*D; k alike with kv_batch_stride; v with v_batch_stride and heads D_v
/// apart.
/// scores s = scale * q.k [softcap*tanh(s/softcap)] [- alibi_h*(i-j)] [+ t5_bias[bucket of i-j][h]], i = q_start + t_q
/// and j = kv_start + t_kv absolute positions; key j is seen iff j <= i, j >= doc_start (of row (b,t_q)),
/// i - j < window, and j lies in the chunk of i. Keys that no query of a block sees cost nothing: work is T * window,
/// not T * T. Softmax in the accumulate dtype, p_j = exp(s_j) / (sum exp(s) [+ exp(sink_h)]), dropout on the
/// probabilities. Tensor cores multiply probabilities, and the gradients of scores, rounded to the storage dtype.
/// Sources: Vaswani et al. 2017; blocked online softmax as Dao et al. 2022 (arXiv:2205.14135) algorithm 1; windows
/// Beltagy et al. 2020 (arXiv:2004.05150); soft cap Gemma Team 2024 (arXiv:2408.00118) section 2; ALiBi Press et al.
/// 2022 (arXiv:2108.12409); T5's bias Raffel et al. 2020 (arXiv:1910.10683) section 2.1; sinks Agarwal et al. 2025
/// (arXiv:2508.10925) section 2.
struct AttentionShape {
  AttentionVariant variant;
  int64_t B = 0, T_q = 0, T_kv = 0;
  int64_t H = 0, G = 0, D = 0;        ///< query heads, KV heads (G divides H), head_dim of q and k: 1 to 512
  int64_t D_v = 0;                    ///< head_dim of v and out: 1 to 512; 0 = D
  int64_t q_start = 0, kv_start = 0;  ///< absolute position of the first query and key
  int64_t q_batch_stride = 0;         ///< elements from sample to sample, for q (and dq)
  int64_t kv_batch_stride = 0;        ///< for k (and dk)
  int64_t v_batch_stride = 0;         ///< for v (and dv); 0 = kv_batch_stride
  ConstView doc_start{};              ///< [B*T_q] kInt32, absolute position where the row's document begins, or absent
  ConstView alibi_slopes{};           ///< [H] accumulate dtype, of these heads, or absent
  ConstView sinks{};                  ///< [H] storage dtype, a score without a value for each head, or absent
  ConstView t5_bias{};                ///< [buckets, H] storage dtype, a score for each bucket and head, or absent
  ConstView t5_buckets{};             ///< [M] kInt32, with t5_bias: the bucket of distance n = i-j is entry min(n, M-1)
  DropoutArgs dropout;

  int64_t v_dim() const { return D_v > 0 ? D_v : D; }
  int64_t v_stride() const { return v_batch_stride > 0 ? v_batch_stride : kv_batch_stride; }
  /// The query of the window's and the chunk's mask with absolute position i sees keys from this position on.
  int64_t first_position(int64_t i) const {
    const int64_t of_window = variant.window > 0 ? i - variant.window + 1 : 0;
    const int64_t of_chunk = variant.chunk > 0 ? i - i % variant.chunk : 0;
    return of_window > of_chunk ? of_window : of_chunk;
  }
  /// The last position whose query sees a key at absolute position j; the largest number where nothing ends it.
  int64_t last_position(int64_t j) const {
    constexpr int64_t kNever = int64_t{1} << 62;
    const int64_t of_window = variant.window > 0 ? j + variant.window - 1 : kNever;
    const int64_t of_chunk = variant.chunk > 0 ? j - j % variant.chunk + variant.chunk - 1 : kNever;
    return of_window < of_chunk ? of_window : of_chunk;
  }

  auto views() const { return std::tie(doc_start, alibi_slopes, sinks, t5_bias, t5_buckets, dropout); }
};

struct AttentionForward {
  ConstView q;     ///< [B*T_q, H*D] storage dtype
  ConstView k, v;  ///< [B*T_kv, G*D] and [B*T_kv, G*D_v] storage dtype
  MutView out;     ///< [B*T_q, H*D_v] storage dtype, written, contiguous over b
  MutView lse;     ///< [B, H, T_q] flat, accumulate dtype, written; log sum exp of the scores and the sink
  AttentionShape shape;

  auto views() const { return std::tie(q, k, v, out, lse, shape); }
};

/// delta[b,h,t] = sum_d out*dout is computed inside unless given.
struct AttentionBackward {
  ConstView dout;      ///< [B*T_q, H*D_v] storage dtype
  ConstView q, k, v;   ///< as in forward
  ConstView out;       ///< [B*T_q, H*D_v] the forward's result
  ConstView lse;       ///< [B, H, T_q] the forward's result
  ConstView delta;     ///< [B, H, T_q] accumulate dtype, or absent
  MutView dq;          ///< [B*T_q, H*D] storage dtype, strides and batch stride of q, by mode
  MutView dk, dv;      ///< as k and v, their strides, by mode; summed over the query heads of a KV head
  MutView dsinks{};    ///< [H] accumulate dtype, by sinks_mode: - sum_{b,t} exp(sink_h - lse) delta; or absent
  MutView dt5_bias{};  ///< [buckets, H] accumulate dtype, by t5_mode: the sum of the gradients of the scores of a
                       ///< bucket and head, in the same order however the call is cut; or absent
  GradMode mode = GradMode::kOverwrite;
  GradMode sinks_mode = GradMode::kAccumulate;
  GradMode t5_mode = GradMode::kAccumulate;
  AttentionShape shape;

  auto views() const { return std::tie(dout, q, k, v, out, lse, delta, dq, dk, dv, dsinks, dt5_bias, shape); }
};

}  // namespace ashlar
