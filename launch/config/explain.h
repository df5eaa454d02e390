#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"

namespace ashlar::config {

/// Returns the documentation of a key (`model.d_ff`), a section (`rope`) or all keys (`all`). Throws Error(kInput) with
/// the nearest key for anything else.
std::string explain(std::string_view what);

/// configs/README.md. Regenerated with `ashlar explain --markdown > configs/README.md`; a test compares.
std::string schema_markdown();

}  // namespace ashlar::config
