#pragma once

#include <string>

#include "core/optim/optimizer.h"
#include "parallel/model/model_config.h"

namespace ashlar::training {

/// The table of parameter groups of the whole model, printed at the start of a run. Tensors of one kind in all layers
/// are one row with count, shape, elements, weight decay and initialization with its rule; the first and the last layer
/// are named where they differ.
std::string parameter_table(const model::ModelConfig& config, const optim::OptimizerOptions& options);

}  // namespace ashlar::training
