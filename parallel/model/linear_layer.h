#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "core/ops/activation.h"
#include "core/ops/grouped_linear.h"
#include "core/ops/linear.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// One of several named matrices that are stored together: its name, and the rows that this rank holds. A list of parts
/// is in storage order.
struct LinearPart {
  std::string name;   ///< name without ".weight" / ".bias"
  nn::DimShard rows;  ///< rows of this rank
  bool bias = false;
  nn::InitRule init;
  nn::TensorAxes axes;
  nn::Role role = nn::Role::kMatrix;  ///< of the matrix
};

/// This rank's part of one or more matrices that multiply the same input rows, stored as one matrix [sum of rows,
/// cols]. The bias vector exists if any part has a bias; its entries for parts without a bias belong to no tensor and
/// stay zero. If the rows of the matrix [out, in] are sharded, the layer is Megatron's column-parallel linear: the
/// result is this rank's columns of the output. If the columns are sharded, the layer is the row-parallel linear: the
/// result is a partial sum, and the bias is on one rank only, so that it is added once. Source: Shoeybi et al. 2019
/// (arXiv:1909.08053), section 3.
class LinearLayer {
 public:
  LinearLayer() = default;
  LinearLayer(nn::ParameterStore& store, std::string name, const nn::DimShard& cols,
              const std::vector<LinearPart>& parts);

  /// Returns the weight, and the bias if there is one.
  std::vector<const nn::Parameter*> parameters() const;

  /// x [N, cols of this rank] -> [N, rows of this rank]
  Var operator()(const Ctx& ctx, const Var& x) const {
    return ops::linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// Computes the product with a matrix that every tensor rank holds completely; the output has the rows of x.
  Var whole(const Ctx& ctx, const Var& x) const {
    return ops::whole_linear(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// Computes the products of groups of rows: x [S, cols], the rows of group g at offsets[g] to offsets[g + 1] - 1,
  /// with the g-th equal part of this layer's rows -> [S, rows of a group].
  Var grouped(const Ctx& ctx, const Var& x, const Tensor& offsets) const {
    return ops::grouped_linear(ctx, x, offsets, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight);
  }
  /// Computes the product and the activation in one pass.
  Var activated(const Ctx& ctx, const Var& x, Activation kind) const {
    return ops::linear_activation(ctx, x, weight_->weight, bias_ == nullptr ? nullptr : &bias_->weight, kind);
  }

 private:
  nn::Parameter* weight_ = nullptr;
  nn::Parameter* bias_ = nullptr;
};

/// Makes the column-parallel linear of a block, whose matrix rows are sharded over `tensor_ranks` ranks. Throws Bug if
/// several ranks hold the same rows but do not sum their gradient, or if the gradient is summed over ranks that hold
/// different rows.
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
  nn::Role role = nn::Role::kMatrix;
};
/// Returns the matrix of a residual output, for a layer that stores several.
LinearPart residual_part(const ModelConfig& config, const ResidualOutput& output);
LinearLayer residual_output(nn::ParameterStore& store, const ModelConfig& config, const ResidualOutput& output);

/// Returns the random stream of a branch's dropout, which is the same on every rank and mesh.
uint32_t dropout_rng_stream(int64_t layer, std::string_view where);

}  // namespace ashlar::model
