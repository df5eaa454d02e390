#pragma once

#include <string>
#include <vector>

#include "core/backend/attention.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Returns the mask of a layer without documents; each micro-batch adds those.
Mask attention_mask(const ModelConfig& config, int64_t layer);
/// The score changes of every layer. Its views have the shapes for all query heads, and no memory.
ScoreChange score_change(const ModelConfig& config);
/// Adds the errors of the configuration keys of masks and scores.
void add_attention_errors(const ModelConfig& config, std::vector<std::string>& errors);

}  // namespace ashlar::model
