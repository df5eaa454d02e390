#pragma once

#include <string>
#include <vector>

#include "core/backend/attention.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Returns the attention mask of a layer without document boundaries, which each micro-batch adds.
Mask attention_mask(const ModelConfig& config, int64_t layer);
/// Returns the changes of attention scores (scale, softcap, sinks, ALiBi, T5 biases), equal for all layers. The views
/// in the result have null pointers, and the shapes for all query heads of the model.
ScoreChange score_change(const ModelConfig& config);
/// Adds an error for each invalid configuration key of attention masks and scores.
void add_attention_errors(const ModelConfig& config, std::vector<std::string>& errors);

}  // namespace ashlar::model
