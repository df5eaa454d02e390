#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/model/branch.h"
#include "parallel/model/slices.h"

namespace ashlar::model {

/// down(act(gate x) * up x) with ffn.clamp and ffn.linear_offset, or down(act(up x)) if ungated, over this rank's slice
/// of d_ff. The scalars of xielu are shared by all of d_ff, so each rank has a partial sum of their gradients. One
/// product computes gate x and up x, or only up x.
class FeedForward final : public Branch {
 public:
  FeedForward(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "ffn"; }
  void add_inputs(nn::ParameterStore& store) override;
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  std::vector<LinearPart> input_parts() const override;
  std::vector<int64_t> input_widths() const override;  ///< widths of gate and up, or of up
  Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const override;

 private:
  const ModelConfig& config_;
  int64_t layer_;
  tensor::TensorParallel tp_;
  Slices slices_;
  std::string name_;
  LinearLayer in_, down_;
  nn::Parameter* scalars_ = nullptr;  ///< {alpha_p, alpha_n} of xielu
};

}  // namespace ashlar::model
