#pragma once

#include <string>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Returns one text for each violated constraint of a resolved config, of the form
/// `section.key = got: expected ...; fix`. Empty when the model can be built. Used by the schema and by importers.
std::vector<std::string> constraint_errors(const ModelConfig& config);

}  // namespace ashlar::model
