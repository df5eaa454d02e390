#pragma once

#include <string>
#include <string_view>

#include "launch/config/run_config.h"

namespace ashlar::config {

/// Returns the documentation of a key (`model.d_ff`), a section (`rope`) or all keys (`all`). Throws Error(kInput) with
/// the nearest key for anything else.
std::string explain(std::string_view what);

/// The text of configs/README.md. `ashlar explain --markdown > configs/README.md` regenerates the file, and a test
/// compares the two.
std::string schema_markdown();

}  // namespace ashlar::config
