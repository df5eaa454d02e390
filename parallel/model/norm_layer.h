#pragma once

#include <string>

#include "core/nn/parameter.h"
#include "core/ops/norm.h"
#include "parallel/model/model_config.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// A vector of a block that every tensor rank holds completely and that acts on rows of the stream; if rows are sharded
/// (sequence parallel) its gradient is a partial sum over the group.
nn::Parameter* stream_vector(nn::ParameterStore& store, const std::string& name, int64_t width,
                             const nn::InitRule& init, const tensor::TensorParallel& tp);

/// A row norm with gain and bias as in norm.affine. Every tensor rank holds both; if rows are sharded (sequence
/// parallel) their gradients are partial sums over the group.
class NormLayer {
 public:
  NormLayer() = default;
  NormLayer(nn::ParameterStore& store, const std::string& name, const ModelConfig& config,
            const tensor::TensorParallel& tp);

  Var operator()(const Ctx& ctx, const Var& x) const { return ops::norm(ctx, x, weights(), variant_); }
  /// The norm of the stream x after the residual add of the branch; also returns that stream.
  ops::Normed joined(const Ctx& ctx, const Var& x, const ops::Branch& branch) const {
    return ops::residual_norm(ctx, x, branch, weights(), variant_);
  }

 private:
  ops::NormWeights weights() const {
    return {.gamma = gamma_ == nullptr ? nullptr : &gamma_->weight,
            .beta = beta_ == nullptr ? nullptr : &beta_->weight};
  }

  nn::Parameter* gamma_ = nullptr;
  nn::Parameter* beta_ = nullptr;
  NormVariant variant_;
};

}  // namespace ashlar::model
