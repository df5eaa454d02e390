#pragma once

#include <string>

#include "parallel/model/branch.h"
#include "parallel/model/slices.h"

namespace ashlar::model {

/// Multi-head latent attention (attn.kind = "mla"): queries, keys and values of this rank's heads from low-rank
/// latents. R = rope.dims, P = head_dim - R, D_v = attn.v_head_dim; every norm is an RMSNorm with a gain and
/// attn.latent_eps:
///   c_q = norm(x Wqa),  q = c_q Wqb             without q_rank: q = x Wq
///   [c | r] = x Wkva,   c_kv = norm(c)          r [N, R]: the rotated part of the keys, one for all heads
///   k_nope = c_kv Wkb,  v = c_kv Wvb
/// A head of q and k is [R columns that rotate | P others]: k_h = [r | k_nope_h]. With bias.qkv, Wqa and Wkva have a
/// bias.
/// The latents are shared by all heads, so each tensor rank computes them completely for its rows of the stream.
/// `enter` then exchanges the latents, which are narrower than the stream. Wqb, Wkb, Wvb and the output are sharded by
/// heads. The cache holds the heads' keys and values. Source: DeepSeek-AI 2024 (arXiv:2405.04434) section 2.1.
class LatentAttention final : public Branch {
 public:
  LatentAttention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "attn"; }
  void add_inputs(nn::ParameterStore& store) override;
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  void add_to_cache(const Ctx& ctx, KvCache& cache) const override;

 private:
  int64_t rope_dims() const { return config_.rope.dims; }
  int64_t nope_dims() const { return config_.head_dim - config_.rope.dims; }
  LinearPart by_heads(const char* name, int64_t head_width, int64_t in, bool queries) const;
  nn::Parameter* add_latent_norm(nn::ParameterStore& store, const char* name, int64_t width) const;
  Var normed(const Ctx& ctx, const Var& latent, nn::Parameter* gain) const;
  Var rotated(const Ctx& ctx, Var x, int64_t heads, int64_t head_dim, const Rows& rows) const;

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  Slices slices_;
  int64_t layer_;
  std::string name_;
  uint32_t scores_rng_stream_;  ///< random stream of the dropout on attention probabilities
  Mask mask_;
  int64_t v_head_dim_;
  LinearLayer down_;          ///< [Wqa; Wkva], or Wkva
  LinearLayer q_, kv_, out_;  ///< Wqb or Wq, [Wkb; Wvb], the output
  nn::Parameter* q_norm_ = nullptr;
  nn::Parameter* kv_norm_ = nullptr;
};

}  // namespace ashlar::model
