#pragma once

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A table of T5's biases [buckets, H], sharded by heads; returns the existing one of that name if the store has it.
nn::Parameter* t5_bias_table(nn::ParameterStore& store, const ModelConfig& config, nn::ShardedTensor tensor,
                             const nn::DimShard& heads);

}  // namespace ashlar::model
