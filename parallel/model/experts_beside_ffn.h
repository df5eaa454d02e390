#pragma once

#include "parallel/model/experts.h"
#include "parallel/model/feed_forward.h"
#include "parallel/model/norm_layer.h"

namespace ashlar::model {

/// A dense feed-forward network and experts that read the same residual stream s, each with norms of its own (Gemma 4):
///   n_ffn(FFN(x)) + n_out(experts(n_in(s))), x the block's norm of s
/// The norms need whole sums, so each part is reduced over the tensor group (Branch::reduces). The block's norm on
/// the branch's output follows. Tensors: blocks.I.ffn.*, blocks.I.moe.*, and the norms blocks.I.ffn.norm_out,
/// moe.norm_in and moe.norm_out. Source: transformers' modeling_gemma4.py.
class ExpertsBesideFfn final : public Branch {
 public:
  ExpertsBesideFfn(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "moe"; }
  void add_inputs(nn::ParameterStore& store) override;
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  bool reduces() const override { return true; }

 private:
  const ModelConfig& config_;
  int64_t layer_;
  tensor::TensorParallel tp_;
  FeedForward ffn_;
  Experts experts_;
  NormLayer ffn_out_, experts_in_, experts_out_;
};

}  // namespace ashlar::model
