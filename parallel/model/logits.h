#pragma once

#include <span>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Converts a row [V] of the head's matrix product to the model's logits, in place: multiplies by head.logit_scale,
/// applies head.softcap, and sets the logits of masked ids to -inf.
void finish_logits(const ModelConfig& config, std::span<double> row);

}  // namespace ashlar::model
