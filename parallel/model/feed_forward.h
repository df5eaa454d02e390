#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/model/branch.h"

namespace ashlar::model {

/// Returns act(gate) * up with ffn.clamp and ffn.linear_offset for the inputs {gate, up}, or act(up) for {up} if
/// ungated. `scalars` of xielu, else null.
Var ffn_activation(const Ctx& ctx, std::span<Var> inputs, const FfnConfig& ffn, Weight* scalars = nullptr);

/// down(act(gate x) * up x) with ffn.clamp and ffn.linear_offset, or down(act(up x)) if ungated, over this rank's slice
/// of d_ff. The scalars of xielu are shared by all of d_ff, so each rank has a partial sum of their gradients. One
/// product computes gate x and up x, or only up x.
class FeedForward final : public Branch {
 public:
  /// Where the network is: its tensors are blocks.LAYER.NAME.*; d_ff is its width.
  struct Place {
    int64_t layer = 0;
    std::string_view name = "ffn";  ///< must outlive the network
    int64_t d_ff = 0;
  };
  FeedForward(const ModelConfig& config, const tensor::TensorParallel& tp, const Place& place);

  std::string_view name() const override { return place_.name; }
  void add_inputs(nn::ParameterStore& store) override;
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;
  /// Computes `forward` for rows that have entered the sharded part (tensor::enter).
  Var of_entered(const Ctx& ctx, const Var& x, const Rows& rows) const;
  std::vector<LinearPart> input_parts() const override;
  std::vector<int64_t> input_widths() const override;  ///< widths of gate and up, or of up
  Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const override;

 private:
  const ModelConfig& config_;
  Place place_;
  tensor::TensorParallel tp_;
  nn::DimShard width_;  ///< this rank's slice of place.d_ff
  std::string name_;
  LinearLayer in_, down_;
  nn::Parameter* scalars_ = nullptr;  ///< {alpha_p, alpha_n} of xielu
};

}  // namespace ashlar::model
