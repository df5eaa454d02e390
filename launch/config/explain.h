#pragma once

#include <string>
#include <string_view>

#include "launch/config/run_config.h"

namespace ashlar::config {

/// Returns the documentation of a key (`model.d_ff`), a section (`rope`) or all keys (`all`). For anything else, throws
/// an input error that suggests the nearest key.
std::string explain(std::string_view what);

/// Returns the text of configs/README.md. `ashlar explain --markdown > configs/README.md` regenerates the file, and a
/// test compares the two.
std::string schema_markdown();

}  // namespace ashlar::config
