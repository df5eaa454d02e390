#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ops/norm_heads.h"
#include "parallel/model/branch.h"
#include "parallel/model/slices.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

/// Causal self-attention of this rank's heads. The steps are: qkv = x [Wq; Wk; Wv]^T; norm of q and k; clip of q, k and
/// v; rotation of q and k; attention; product with the output matrix. With attn.qk_norm_order = "after_rope" the norm
/// follows the rotation. With attn.k_eq_v, layers with full attention compute only x [Wq; Wk]^T, and v is a copy of k
/// before the norm and rotation of k. With attn.v_norm each head of v is divided by its root mean square before the
/// clip. The inputs of forward_from are the columns of qkv, which one product computes.
class Attention final : public Branch {
 public:
  Attention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "attn"; }
  void add_inputs(nn::ParameterStore& store) override;
  /// Adds the output matrix, the norms of queries and keys, the sinks and this layer's T5 biases, as configured.
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  std::vector<LinearPart> input_parts() const override;
  std::vector<int64_t> input_widths() const override;  ///< widths of qkv
  /// q and k are rotated in place in qkv, unless a norm, a copy of keys to values or a clip comes first.
  Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const override;
  void add_to_cache(const Ctx& ctx, KvCache& cache) const override;

 private:
  ops::HeadNorm head_norm(nn::ParameterStore& store, const char* name, const nn::DimShard& heads, bool keys);
  void make_parts(nn::ParameterStore& store);
  Var arranged(const Ctx& ctx, const Var& qkv, const std::vector<ops::HeadPart>& parts) const;
  Var rotate(const Ctx& ctx, Var qkv, const Rows& rows) const;

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  Slices slices_;
  LayerHeads heads_;
  int64_t layer_;
  std::string name_;
  uint32_t scores_rng_stream_;  ///< random stream of the dropout on attention probabilities
  Mask mask_;
  LinearLayer qkv_, out_;
  /// Work on the heads before and after the rotation of q and k: norms, and the copy of keys to values. Either list may
  /// be empty.
  std::vector<ops::HeadPart> before_, after_;
  std::unique_ptr<tensor::GroupReduction> over_all_heads_;  ///< sums over the tensor group, for attn.qk_norm = "full"
  nn::Parameter* sinks_ = nullptr;
  nn::Parameter* t5_bias_ = nullptr;  ///< table of this layer; null if the layers share one
};

}  // namespace ashlar::model
