#pragma once

#include <string>

#include "core/nn/parameter.h"
#include "core/ops/norm.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A row norm with the gain and bias that norm.affine asks for.
class NormLayer {
 public:
  NormLayer() = default;
  NormLayer(nn::ParameterStore& store, const std::string& name, const ModelConfig& config);

  Var operator()(const Ctx& ctx, const Var& x) const {
    return ops::norm(ctx, x, gamma_ == nullptr ? nullptr : &gamma_->weight, beta_ == nullptr ? nullptr : &beta_->weight,
                     options_);
  }

 private:
  nn::Parameter* gamma_ = nullptr;
  nn::Parameter* beta_ = nullptr;
  ops::NormOptions options_;
};

}  // namespace ashlar::model
