#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/training/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Runs `ashlar WORDS...` and returns its exit code. One table of subcommands makes dispatch and the overview.
int run_command(const std::vector<std::string>& words, training::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log);

}  // namespace ashlar::launch
