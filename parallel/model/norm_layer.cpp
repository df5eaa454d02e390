#include "parallel/model/norm_layer.h"

namespace ashlar::model {

namespace {

nn::Parameter* vector_parameter(nn::ParameterStore& store, const std::string& name, int64_t width, double value,
                                const char* rule) {
  const nn::Piece piece{.name = name,
                        .role = nn::Role::kNorm,
                        .global_shape = Shape{width},
                        .rows = 1,
                        .cols = width,
                        .init = {.kind = nn::InitRule::Kind::kConstant, .value = value, .rule = rule}};
  return &store.add(name, Shape{width}, {piece});
}

}  // namespace

NormLayer::NormLayer(nn::ParameterStore& store, const std::string& name, const ModelConfig& config)
    : options_{.type = config.norm.type, .eps = config.norm.eps} {
  if (config.norm.affine == NormAffine::kNone) return;
  gamma_ = vector_parameter(store, name + ".weight", config.d_model, 1.0, "1");
  if (config.norm.affine == NormAffine::kScaleBias)
    beta_ = vector_parameter(store, name + ".bias", config.d_model, 0.0, "0");
}

}  // namespace ashlar::model
