#pragma once

#include <string>

#include "core/ops/residual.h"
#include "core/ops/rope.h"
#include "parallel/model/batch_view.h"
#include "parallel/model/kv_cache.h"
#include "parallel/model/linear_layer.h"
#include "parallel/model/model_config.h"
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

  /// x [N_loc, C] -> [N_loc, C], N_loc = N, or N/size where rows are sharded. `tables` may be empty unless positions
  /// are rotary.
  Var forward(const Ctx& ctx, const Var& x, const BatchView& batch, const ops::RopeTables& tables) const;
  /// The same for new tokens of samples whose past is in the cache; nothing is recorded, rows are never sharded.
  Tensor decode(const Ctx& ctx, const Tensor& x, const BatchView& batch, const ops::RopeTables& tables,
                KvCache& cache) const;

 private:
  using Attend = std::function<Var(const Var& qkv)>;
  Var combine(const Ctx& ctx, const tensor::TensorParallel& tp, const Var& x, const Attend& attend) const;
  Var feed_forward(const Ctx& ctx, const Var& x, const Var* up) const;
  Var rotate(const Ctx& ctx, const Var& qkv, const BatchView& batch, const ops::RopeTables& tables) const;
  Var ffn_from_input(const Ctx& ctx, const Var& h) const;
  uint32_t dropout_site(const char* where) const;

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  tensor::Slices slices_;
  int64_t index_;
  std::string name_;
  NormLayer norm1_, norm2_;
  LinearLayer qkv_;     ///< [q; k; v], or [q; k; v; gate; up] in a parallel block with one norm
  LinearLayer ffn_in_;  ///< [gate; up] or [up]; absent when fused into qkv_
  LinearLayer attn_out_, ffn_down_;
  bool fused_;
};

}  // namespace ashlar::model
