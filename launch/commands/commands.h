#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Runs `ashlar WORDS...` and returns its exit code. One table of subcommands makes dispatch and the overview.
int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log);

/// False for a command whose result lies in files and whose lines only tell of it (train): it continues when standard
/// output is lost. Of all others, and of a command that is asked for its help, the output is the result.
bool prints_its_result(const std::vector<std::string>& words);

}  // namespace ashlar::launch
