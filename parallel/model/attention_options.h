#pragma once

#include <string>
#include <vector>

#include "core/backend/attention.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Which keys the queries of a layer see, without documents, which each micro-batch adds.
Mask attention_mask(const ModelConfig& config, int64_t layer);
/// The score changes of every layer. Its views have the shapes for all query heads, and no memory.
ScoreChange score_change(const ModelConfig& config);
/// Errors of the configuration keys of masks and scores.
void add_attention_errors(const ModelConfig& config, std::vector<std::string>& errors);

}  // namespace ashlar::model
