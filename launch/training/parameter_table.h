#pragma once

#include <string>

#include "core/optim/optimizer.h"
#include "parallel/model/model_config.h"

namespace ashlar::training {

/// Returns the table of the whole model's parameters, printed at the start of a run. The tensors of one kind in all
/// layers share a row with count, shape, elements, weight decay and initialization. If the initialization differs
/// between layers, the row shows it for the first and for the last layer.
std::string parameter_table(const model::ModelConfig& config, const optim::OptimizerOptions& options);

}  // namespace ashlar::training
