#pragma once

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A table of T5's biases [buckets, H], cut by heads, or the one of that name that the store has.
nn::Parameter* t5_bias_table(nn::ParameterStore& store, const ModelConfig& config, nn::ShardedTensor tensor,
                             const nn::Extent& heads);

}  // namespace ashlar::model
