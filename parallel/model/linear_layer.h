#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "core/ops/activation.h"
#include "core/ops/linear.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// One of several named matrices that are stored together: its name, and which of its rows this rank holds. Lists of
/// parts are in the order in which they are stored.
struct LinearPart {
  std::string name;   ///< name without ".weight" / ".bias"
  nn::DimShard rows;  ///< rows of this rank
  bool bias = false;
  nn::InitRule init;
  nn::TensorAxes axes;
};

/// Storage of this rank's part of one or more matrices that multiply the same rows: [sum of rows, cols]. The bias
/// vector exists if any part has a bias; entries of other parts belong to no tensor and stay zero. Sharded by rows, it
/// is Megatron's column-parallel linear: the result is this rank's columns. Sharded by columns, it is the row-parallel
/// linear: the result is a partial sum, and the bias is on one rank only, so that it is added once.
/// Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3.
class LinearLayer {
 public:
  LinearLayer() = default;
  LinearLayer(nn::ParameterStore& store, std::string name, const nn::DimShard& cols,
              const std::vector<LinearPart>& parts);

  /// Its weight, and its bias if it has one.
  std::vector<const nn::Parameter*> parameters() const;

  /// x [N, cols of this rank] -> [N, rows of this rank]
  Var operator()(const Ctx& ctx, const Var& x) const {
    return ops::linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// Computes the product with a matrix that every tensor rank holds completely; the output has the rows of x.
  Var whole(const Ctx& ctx, const Var& x) const {
    return ops::whole_linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// Computes the product and the activation in one pass.
  Var activated(const Ctx& ctx, const Var& x, Activation kind) const {
    return ops::linear_activation(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight, kind);
  }

 private:
  nn::Parameter* weight_ = nullptr;
  nn::Parameter* bias_ = nullptr;
};

/// The column-parallel product of a block's rows with matrices whose rows are sharded over `tensor_ranks` ranks. Bug if
/// ranks hold the same rows and their gradient is not summed over these ranks, or if the gradient is summed over ranks
/// with different rows.
LinearLayer input_product(nn::ParameterStore& store, const ModelConfig& config, std::string name,
                          const std::vector<LinearPart>& parts, int64_t tensor_ranks);

/// One of the two matrices of a block that write to the residual stream: row-parallel, so the result is a partial sum,
/// and the bias is on the first tensor rank only, so that it is added once.
struct ResidualOutput {
  std::string name;
  nn::DimShard cols;  ///< columns of this rank
  bool bias = false;
  int64_t tensor_rank = 0;
  int64_t layer = 0;
};
LinearLayer residual_output(nn::ParameterStore& store, const ModelConfig& config, const ResidualOutput& output);

/// The random stream of a branch's dropout, the same on every rank and mesh.
uint32_t dropout_rng_stream(int64_t layer, std::string_view where);

}  // namespace ashlar::model
