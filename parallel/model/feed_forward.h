#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/model/linear_layer.h"
#include "parallel/model/slices.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// down(act(gate x) * up x) with clamp and offset as ffn.clamp and ffn.linear_offset say, or down(act(up x)) ungated,
/// over this rank's slice of d_ff. The scalars of xielu are the same for all of d_ff, so ranks have parts of their
/// gradient. As with Attention, a parallel block with one norm keeps gate and up in its own product and calls
/// `from_parts`.
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::vector<LinearPart> input_parts() const;
  std::vector<int64_t> part_widths() const;
  void add_input(nn::ParameterStore& store);
  void add_output(nn::ParameterStore& store);

  /// x [N, C] -> this rank's part of the sum over d_ff [N, C]
  Var operator()(const Ctx& ctx, const Var& x) const;
  /// {gate, up} or {up}, each [N, F] of this rank's columns -> as above
  Var from_parts(const Ctx& ctx, std::span<const Var> parts) const;

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
