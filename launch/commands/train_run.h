#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/config/run_config.h"

namespace ashlar::launch {

/// Reads the configuration that `ashlar train PATH` names: a TOML file; or a run directory, which means the config.toml
/// in it, as the path of that file does. A run is where its directory is, whatever name it was begun under, so that
/// run.dir is then this directory, unless an override says otherwise; a move is logged. It goes on on as many ranks as
/// there are. Input error for a directory of another kind.
config::RawConfig read_run_config(const std::string& path, const std::vector<std::string>& overrides, int64_t ranks,
                                  Log& log);

}  // namespace ashlar::launch
