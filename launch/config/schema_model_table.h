#pragma once

#include <span>

#include "launch/config/schema.h"

namespace ashlar::config {

/// The keys that define a model: sections model to init, a part of schema().
std::span<const KeySpec> model_keys();

/// Whether some layer of attn.window_cycle has a window.
bool has_windows(const model::AttentionConfig& attn);

}  // namespace ashlar::config
