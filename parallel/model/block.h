#pragma once

#include "core/ops/residual.h"
#include "parallel/model/attention.h"
#include "parallel/model/feed_forward.h"
#include "parallel/model/norm_layer.h"

namespace ashlar::model {

/// One transformer block, serial or parallel.
///   serial    x += drop(attn(norm1(x)));  x += drop(ffn(norm2(x)))
///   parallel  x += drop(attn(norm1(x))) + drop(ffn(norm(x))), norm = norm1 (one norm) or norm2 (two), of the same x
/// With one norm q, k, v, gate and up are one matrix product. Source of the parallel form: Wang & Komatsuzaki 2021
/// (GPT-J); Chowdhery et al. 2022 (arXiv:2204.02311) section 2.
/// A tensor rank holds a slice of the heads and of d_ff. Norms and residual adds work on rows that every rank has (or
/// shares, sequence parallel); products lie between `enter` and `exit`: two exits in the serial form, one in the
/// parallel form, where the partial sums of both branches are added first.
class Block {
 public:
  Block(nn::ParameterStore& store, const ModelConfig& config, int64_t index, const tensor::TensorParallel& tp);

  /// x [N_loc, C] -> [N_loc, C], N_loc = N, or N/size where rows are sharded. With a cache the rows are new tokens of
  /// samples whose past it holds: nothing is recorded, and rows are never sharded.
  Var operator()(const Ctx& ctx, const Var& x, const Rows& rows) const;

 private:
  struct Context;
  Var serial(const Context& at, const Var& x) const;
  Var parallel(const Context& at, const Var& x) const;
  ops::Branch branch(const Var& v, uint32_t site) const {
    return {.value = v, .dropout = config_.dropout.resid, .site = site};
  }

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  bool fused_;  ///< [q; k; v; gate; up] is one product: the parallel block with one norm
  uint32_t attn_site_, ffn_site_;
  Attention attention_;
  FeedForward ffn_;
  NormLayer norm1_, norm2_;
  LinearLayer fused_in_;
};

}  // namespace ashlar::model
