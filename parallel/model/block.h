#pragma once

#include <optional>

#include "core/ops/residual.h"
#include "parallel/model/attention.h"
#include "parallel/model/feed_forward.h"
#include "parallel/model/latent_attention.h"
#include "parallel/model/norm_layer.h"

namespace ashlar::model {

/// One transformer block, serial or parallel. m is block.residual_multiplier; n1', n2' are norm1_out and norm2_out.
///   serial    pre       x += m drop(attn(n1(x)));        x += m drop(ffn(n2(x)))
///             post      x = n1(x + m drop(attn(x)));     x = n2(x + m drop(ffn(x)))
///             sandwich  x += m drop(n1'(attn(n1(x))));   x += m drop(n2'(ffn(n2(x))))
///             output    x += m drop(n1'(attn(x)));       x += m drop(n2'(ffn(x)))
///   parallel            x += m drop(attn(n1(x))) + m drop(ffn(n(x))), n = n1 (one norm) or n2 (two), of the same x
/// With block.out_scalar all that a block makes is multiplied by one learned number at last: x = s x (Gemma 4).
/// With one norm q, k, v, gate and up are one matrix product (not of latents: attn.kind = "mla"). Sources: Wang &
/// Komatsuzaki 2021 (GPT-J), Chowdhery et al. 2022 (arXiv:2204.02311) section 2: parallel; Xiong et al. 2020
/// (arXiv:2002.04745): pre and post; Gemma Team 2024 (arXiv:2408.00118): sandwich; OLMo Team 2025 (arXiv:2501.00656)
/// section 3.2: output. A tensor rank holds a slice of the heads and of d_ff. Norms and residual adds work on rows that
/// every rank has (or shares, sequence parallel); products lie between `enter` and `exit`: two exits in the serial
/// form, one in the parallel form, where the partial sums of both branches are added first.
class Block {
 public:
  Block(nn::ParameterStore& store, const ModelConfig& config, int64_t index, const tensor::TensorParallel& tp);

  /// x [N_loc, C] -> [N_loc, C], N_loc = N, or N/size where rows are sharded. With a cache the rows are new tokens of
  /// samples whose past it holds: nothing is recorded, and rows are never sharded.
  Var operator()(const Ctx& ctx, const Var& x, const Rows& rows) const;

 private:
  struct Context;
  Var composed(const Context& at, const Var& x) const;
  Var serial(const Context& at, const Var& x) const;
  Var serial_post(const Context& at, const Var& x) const;
  Var parallel(const Context& at, const Var& x) const;
  /// This rank's part of the sum over heads, of rows of the stream.
  Var attended_part(const Context& at, const Var& x) const;
  /// A branch of the serial block: of rows of the stream, to rows of the stream, before it joins.
  Var attend(const Context& at, const Var& x) const;
  Var feed(const Context& at, const Var& x) const;
  ops::Branch branch(const Var& v, uint32_t site) const {
    return {.value = v, .dropout = config_.dropout.resid, .site = site, .scale = config_.block.residual_multiplier};
  }

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  bool fused_;  ///< [q; k; v; gate; up] is one product: the parallel block with one norm
  uint32_t attn_site_, ffn_site_;
  std::optional<Attention> attention_;
  std::optional<LatentAttention> latent_;  ///< in its place, by attn.kind
  FeedForward ffn_;
  NormLayer norm1_, norm2_, norm1_out_, norm2_out_;  ///< those that norm.placement has
  LinearLayer fused_in_;
  nn::Parameter* out_scalar_ = nullptr;  ///< with block.out_scalar
};

}  // namespace ashlar::model
