#pragma once

#include <string>

#include "core/nn/parameter.h"
#include "core/ops/norm.h"
#include "parallel/model/model_config.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// Adds a parameter vector that every tensor rank holds completely and that acts on rows of the residual stream. If
/// rows are sharded (sequence parallel), each rank has a partial sum of the vector's gradient.
nn::Parameter* stream_vector(nn::ParameterStore& store, const std::string& name, int64_t width,
                             const nn::InitRule& init, const tensor::TensorParallel& tp);

/// A row norm; norm.affine selects whether it has a gain and a bias. Every tensor rank holds both completely. If rows
/// are sharded (sequence parallel), each rank has partial sums of their gradients.
class NormLayer {
 public:
  NormLayer() = default;
  NormLayer(nn::ParameterStore& store, const std::string& name, const ModelConfig& config,
            const tensor::TensorParallel& tp);

  Var operator()(const Ctx& ctx, const Var& x) const { return ops::norm(ctx, x, weights(), variant_); }
  /// Adds the branches to the residual stream x, and returns the new stream and its normalized rows.
  ops::Normed joined(const Ctx& ctx, const Var& x, const ops::Branch& a, const ops::Branch* b = nullptr) const {
    return ops::residual_norm(ctx, x, a, b, weights(), variant_);
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
