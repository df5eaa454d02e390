#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/config/run_config.h"

namespace ashlar::launch {

/// Reads the configuration that `ashlar train PATH` names: a TOML file, or a run directory, which means its
/// config.toml. A run directory may have been moved since config.toml was written, so run.dir is set to the current
/// directory of the run unless the user overrides it; a move is logged. The run resumes on the current number of ranks.
/// Throws an input error for a directory that is not a run directory.
config::RawConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides, int64_t ranks,
                                  Log& log);

}  // namespace ashlar::launch
