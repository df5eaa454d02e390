#pragma once

#include <span>

#include "launch/config/schema.h"

namespace ashlar::config {

/// The keys that define a model: sections model to init, a part of schema().
std::span<const KeySpec> model_keys();

}  // namespace ashlar::config
