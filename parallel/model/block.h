#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/ops/residual.h"
#include "parallel/model/branch.h"
#include "parallel/model/norm_layer.h"

namespace ashlar::model {

/// The residual stream between two blocks: x and the branches, at most two, that are still to be added to it. The norm
/// at the beginning of the next block adds them in the pass in which it normalizes.
struct StreamSum {
  Var x;
  std::vector<ops::Branch> branches = {};
};

/// One transformer block, serial or parallel. m is block.residual_multiplier; n1, n2, n1', n2' are norm1, norm2,
/// norm1_out and norm2_out; drop is dropout with dropout.resid.
///   serial    pre       x += m drop(attn(n1(x)));        x += m drop(ffn(n2(x)))
///             post      x = n1(x + m drop(attn(x)));     x = n2(x + m drop(ffn(x)))
///             sandwich  x += m drop(n1'(attn(n1(x))));   x += m drop(n2'(ffn(n2(x))))
///             output    x += m drop(n1'(attn(x)));       x += m drop(n2'(ffn(x)))
///   parallel            x += m drop(attn(n1(x))) + m drop(ffn(n(x))), n = n1 (one norm) or n2 (two), of the same x
/// With block.out_scalar the output of the block is multiplied by a learned scalar: x = s x (Gemma 4).
/// A parallel block with one norm computes q, k, v, gate and up in one matrix product (except with latent attention,
/// attn.kind = "mla"). A tensor rank holds a slice of the heads and of d_ff. Norms and residual adds work on all rows
/// on every rank, or, with sequence parallelism, on this rank's rows. Each branch is between `enter` and `exit`
/// (tensor/collectives.h). A serial block has two exits. A parallel block has one: the partial sums of both branches
/// are added before it.
/// Sources: Wang & Komatsuzaki 2021 (GPT-J), Chowdhery et al. 2022 (arXiv:2204.02311) section 2: parallel; Xiong et al.
/// 2020 (arXiv:2002.04745): pre and post; Gemma Team 2024 (arXiv:2408.00118): sandwich; OLMo Team 2025
/// (arXiv:2501.00656) section 3.2: output.
class Block {
 public:
  Block(nn::ParameterStore& store, const ModelConfig& config, int64_t index, const tensor::TensorParallel& tp);

  /// x [N_loc, C] -> [N_loc, C], N_loc = N, or N/size if rows are sharded. With a cache the rows are new tokens that
  /// follow the cached ones; nothing is recorded on a tape, and rows are not sharded.
  StreamSum operator()(const Ctx& ctx, StreamSum x, const Rows& rows) const;
  /// Adds the branches to the stream.
  Var total(const Ctx& ctx, const StreamSum& x, const Rows& rows) const;
  void add_to_cache(const Ctx& ctx, KvCache& cache) const;  ///< adds this layer's keys and values to the cache

 private:
  struct Context;
  Context context(const Ctx& ctx, const Var& x, const Rows& rows) const;
  StreamSum composed(const Context& at, StreamSum in) const;
  StreamSum serial(const Context& at, StreamSum in) const;
  StreamSum serial_post(const Context& at, StreamSum in) const;
  StreamSum parallel(const Context& at, StreamSum in) const;
  /// Returns the stream and norm1 of it.
  ops::Normed first_norm(const Context& at, StreamSum in) const;
  /// Returns this rank's partial sum of a branch for rows x, before the reduction over the tensor group. `stream`: the
  /// rows of the stream of which x is the norm.
  Var part(const Context& at, size_t branch, const Var& x, const Var& stream) const;
  /// Returns the output rows of a branch after the reduction over the tensor group, before the residual add.
  Var whole(const Context& at, size_t branch, const Var& x, const Var& stream) const;
  /// Returns the output v of a branch as an operand of the residual add.
  ops::Branch joining(size_t branch, const Var& v) const;

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  bool fused_;  ///< true if one product gives q, k, v, gate and up: a parallel block with one norm
  std::array<std::unique_ptr<Branch>, 2> branches_;
  std::array<uint32_t, 2> rng_streams_;              ///< random streams of the branches' dropout
  NormLayer norm1_, norm2_, norm1_out_, norm2_out_;  ///< norms selected by norm.placement
  LinearLayer fused_in_;
  nn::Parameter* out_scalar_ = nullptr;  ///< null without block.out_scalar
};

}  // namespace ashlar::model
