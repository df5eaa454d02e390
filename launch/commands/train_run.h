#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/config/run_config.h"

namespace ashlar::launch {

/// Reads the configuration that `ashlar train PATH` names: a TOML file, or a run directory, which means its
/// config.toml. A run may have been renamed, so run.dir is set to its current directory unless overridden; a move is
/// logged. It resumes on the current number of ranks. Input error for a directory of another kind.
config::RawConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides, int64_t ranks,
                                  Log& log);

}  // namespace ashlar::launch
