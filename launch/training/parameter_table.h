#pragma once

#include <string>

#include "core/optim/optimizer.h"
#include "parallel/model/model_config.h"

namespace ashlar::training {

/// The table of parameter groups, of the whole model, that a run prints at its start: tensors of one kind in all layers
/// are one row with count, shape, elements, decay and initial values with their rule, of the first and of the last
/// layer where they differ.
std::string parameter_table(const model::ModelConfig& config, const optim::OptimizerOptions& options);

}  // namespace ashlar::training
