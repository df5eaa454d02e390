#pragma once

#include <span>

#include "launch/config/schema.h"

namespace ashlar::config {

/// The keys of the sections from model to init, which define a model. schema() contains them.
std::span<const KeySpec> model_keys();

}  // namespace ashlar::config
