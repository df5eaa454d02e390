#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ops/norm_heads.h"
#include "parallel/model/branch.h"
#include "parallel/model/slices.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

/// Causal self-attention of this rank's heads. Steps: qkv = x [q; k; v]^T; q and k are normed; q, k and v are clipped;
/// q and k are rotated; attention; product with the output matrix. With the norm after rope, q, k and v are first
/// clipped, then q and k are rotated and normed. In layers with full attention and attn.k_eq_v, qk = x [q; k]^T, and v
/// is k before all other steps. With attn.v_norm each head of v is divided by its root mean square before q and k are
/// rotated. Its inputs are one product, qkv.
class Attention final : public Branch {
 public:
  Attention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "attn"; }
  void add_inputs(nn::ParameterStore& store) override;
  /// Adds the output matrix, the norms of queries and keys, the sinks and this layer's biases, as configured.
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  std::vector<LinearPart> input_parts() const override;
  std::vector<int64_t> input_widths() const override;  ///< widths of qkv
  /// If no norm comes before, q and k are rotated in place in qkv.
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
  uint32_t scores_rng_stream_;  ///< dropout on the probabilities
  Mask mask_;
  LinearLayer qkv_, out_;
  /// The steps before and after the rotation of q and k: norms, and the copy of keys to values. Either may be empty.
  std::vector<ops::HeadPart> before_, after_;
  std::unique_ptr<tensor::GroupReduction> over_all_heads_;  ///< for norms over all heads
  nn::Parameter* sinks_ = nullptr;
  nn::Parameter* t5_bias_ = nullptr;  ///< this layer's own table
};

}  // namespace ashlar::model
