#pragma once

#include <span>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A row of logits [V] as the head's product gives them -> those of the model: factor, cap and masks (-inf).
void finish_logits(const ModelConfig& config, std::span<double> row);

}  // namespace ashlar::model
