#pragma once

#include <cstdint>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Initial values of a matrix [out, in] by the scheme; `to_residual` marks the two that write to the stream.
/// normal: std. gpt2: std, to the stream std*residual_scale (Radford et al. 2019, section 2.3). xavier:
/// sqrt(2/(in+out)) (Glorot & Bengio 2010, eq. 16). kaiming: sqrt(2/in) (He et al. 2015, eq. 10).
nn::InitRule matrix_init(const ModelConfig& config, int64_t out, int64_t in, bool to_residual);
/// Embedding and position tables: normal with init.std.
nn::InitRule table_init(const ModelConfig& config);

/// A norm's gain: it multiplies by 1 at first.
nn::InitRule gain_init(const ModelConfig& config);

}  // namespace ashlar::model
