#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Which attention it is: one struct for the model's config, its op and the kernels.
struct AttentionVariant {
  double scale = 1;     ///< factor on q.k
  double softcap = 0;   ///< 0 = none
  int64_t window = -1;  ///< -1 = full
  bool operator==(const AttentionVariant&) const = default;
};

/// What attention forward and backward share. Query head h reads KV head floor(h*G/H). Row (b, t) of q is at
/// q.data + b*q_batch_stride + t*q.stride + h*D; k and v alike with kv_batch_stride.
/// scores s = scale * q.k [softcap*tanh(s/softcap)] [- alibi_h*(i-j)] [+ t5[bucket][h]], i = q_start + t_q and
/// j = kv_start + t_kv absolute positions; key j is seen iff j <= i, j >= doc_start (of row (b,t_q)), i - j < window.
/// Softmax in the accumulate dtype, dropout on the probabilities. Tensor cores multiply probabilities, and the
/// gradients of scores, rounded to the storage dtype. Not supported yet (an input_error that names the field): softcap,
/// alibi, t5, window. Source: Vaswani et al. 2017; blocked online softmax as Dao et al. 2022 (arXiv:2205.14135)
/// algorithm 1.
struct AttentionShape {
  AttentionVariant variant;
  int64_t B = 0, T_q = 0, T_kv = 0;
  int64_t H = 0, G = 0, D = 0;        ///< query heads, KV heads (G divides H), head_dim
  int64_t q_start = 0, kv_start = 0;  ///< absolute position of the first query and key
  int64_t q_batch_stride = 0;         ///< elements from sample to sample, for q (and dq)
  int64_t kv_batch_stride = 0;        ///< for k, v (and dk, dv)
  ConstView doc_start{};              ///< [B*T_q] kInt32, absolute position where the row's document begins, or absent
  ConstView alibi_slopes{};           ///< [H] fp32
  ConstView t5_bias{};                ///< [buckets, H] fp32
  MutView t5_bias_grad{};             ///< [buckets, H] fp32, accumulated
  DropoutArgs dropout;
};

struct AttentionForward {
  ConstView q;     ///< [B*T_q, H*D] storage dtype
  ConstView k, v;  ///< [B*T_kv, G*D] storage dtype
  MutView out;     ///< [B*T_q, H*D] storage dtype, written, contiguous over b
  MutView lse;     ///< [B, H, T_q] flat, accumulate dtype, written; log sum exp of the scores
  AttentionShape shape;
};

/// delta[b,h,t] = sum_d out*dout is computed inside unless given.
struct AttentionBackward {
  ConstView dout;     ///< [B*T_q, H*D] storage dtype
  ConstView q, k, v;  ///< as in forward
  ConstView out;      ///< [B*T_q, H*D] the forward's result
  ConstView lse;      ///< [B, H, T_q] the forward's result
  ConstView delta;    ///< [B, H, T_q] accumulate dtype, or absent
  MutView dq;         ///< [B*T_q, H*D] storage dtype, strides and batch stride of q, by mode
  MutView dk, dv;     ///< [B*T_kv, G*D] storage dtype, strides of k, by mode; summed over the query heads of a KV head
  GradMode mode = GradMode::kOverwrite;
  AttentionShape shape;
};

}  // namespace ashlar
