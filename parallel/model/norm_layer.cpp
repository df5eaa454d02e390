#include "parallel/model/norm_layer.h"

#include "parallel/model/init.h"

namespace ashlar::model {

nn::Parameter* stream_vector(nn::ParameterStore& store, const std::string& name, int64_t width,
                             const nn::InitRule& init, const tensor::TensorParallel& tp) {
  const nn::ShardedTensor tensor{.name = name,
                                 .role = nn::Role::kNorm,
                                 .global_shape = Shape{width},
                                 .rows = 1,
                                 .cols = width,
                                 .init = init,
                                 .axes = tp.stream_axes()};
  return &store.add(name, Shape{width}, {tensor});
}

NormLayer::NormLayer(nn::ParameterStore& store, const std::string& name, const ModelConfig& config,
                     const tensor::TensorParallel& tp)
    : variant_(config.norm.variant) {
  if (config.norm.affine == NormAffine::kNone) return;
  gamma_ = stream_vector(store, name + ".weight", config.d_model, gain_init(config), tp);
  if (config.norm.affine == NormAffine::kScaleBias)
    beta_ = stream_vector(store, name + ".bias", config.d_model, {.rule = "0"}, tp);
}

}  // namespace ashlar::model
