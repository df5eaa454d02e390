#pragma once

#include <span>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Converts a row of logits [V] from the head's product to the model's: factor, cap and masks (-inf).
void finish_logits(const ModelConfig& config, std::span<double> row);

}  // namespace ashlar::model
