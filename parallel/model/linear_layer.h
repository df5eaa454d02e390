#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "core/ops/activation.h"
#include "core/ops/linear.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Rows of one named matrix that share storage with others, in storage order.
struct LinearPart {
  std::string name;  ///< without ".weight" / ".bias"
  nn::Extent rows;   ///< those of this rank
  bool bias = false;
  nn::InitRule init;
  nn::TensorAxes axes;
};

/// Storage for this rank's part of one or more matrices that multiply the same rows: [sum of rows, cols]. The bias
/// vector exists when any part has one; the other parts' entries of it belong to no tensor and stay zero.
/// Split by rows it is Megatron's column-parallel linear (the result is this rank's columns), split by cols the
/// row-parallel one (the result is a partial sum; its bias lives on one rank alone, so that it is added once).
/// Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3.
class LinearLayer {
 public:
  LinearLayer() = default;
  LinearLayer(nn::ParameterStore& store, std::string name, const nn::Extent& cols,
              const std::vector<LinearPart>& parts);

  /// Its weight, and its bias where it has one.
  std::vector<const nn::Parameter*> parameters() const;

  /// x [N, cols of this rank] -> [N, rows of this rank]
  Var operator()(const Ctx& ctx, const Var& x) const {
    return ops::linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// The same of a matrix that every tensor rank holds whole: rows in, rows out.
  Var whole(const Ctx& ctx, const Var& x) const {
    return ops::whole_linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// The same, and its activation in the same pass.
  Var activated(const Ctx& ctx, const Var& x, Activation kind) const {
    return ops::linear_activation(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight, kind);
  }

 private:
  nn::Parameter* weight_ = nullptr;
  nn::Parameter* bias_ = nullptr;
};

/// The product of a block's rows with matrices of which `tensor_ranks` ranks hold the rows: column-parallel. A Bug when
/// ranks hold rows in common whose gradient is not summed over them, or the other way round.
LinearLayer input_product(nn::ParameterStore& store, const ModelConfig& config, std::string name,
                          const std::vector<LinearPart>& parts, int64_t tensor_ranks);

/// One of the two matrices of a block that write to the residual stream: row-parallel, so the result is a partial sum,
/// and the bias lives on the first tensor rank, where it is added once.
struct ResidualOutput {
  std::string name;
  nn::Extent cols;  ///< those of this rank
  bool bias = false;
  int64_t tensor_rank = 0;
  int64_t layer = 0;
};
LinearLayer residual_output(nn::ParameterStore& store, const ModelConfig& config, const ResidualOutput& output);

/// Dropout sites of a block, the same on every rank and mesh.
uint32_t dropout_site(int64_t layer, std::string_view where);

}  // namespace ashlar::model
