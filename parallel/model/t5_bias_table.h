#pragma once

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Adds a table of T5's biases [buckets, H], sharded by heads, to the store. Returns the existing table if the store
/// has one of that name.
nn::Parameter* t5_bias_table(nn::ParameterStore& store, const ModelConfig& config, nn::ShardedTensor tensor,
                             const nn::DimShard& heads);

}  // namespace ashlar::model
