#pragma once

#include <cstdint>

#include "launch/hf/hf_checkpoint.h"

namespace ashlar::hf {

/// Turns a dense model into one with experts (sparse upcycling: Komatsuzaki et al. 2022, arXiv:2212.05055): each expert
/// of a layer gets the weights of the layer's feed-forward network, the router gets the initial values that training
/// with `seed` would give it, and every other tensor stays as it is. The weights of a token's experts sum to one, so
/// the model computes what the dense one does, up to rounding.
///   `sparse` is the dense model with other keys moe.*. Throws a ConfigError that names the keys with which the models
/// would differ, an input error for a model that has experts already. Reads nothing; the tensors are read by `read` of
/// the result. Tensors keep their dtype; a router has the dtype of its layer's feed-forward network.
ModelSource upcycled(const ModelSource& dense, const model::ModelConfig& sparse, uint64_t seed);

}  // namespace ashlar::hf
