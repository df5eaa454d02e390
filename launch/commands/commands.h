#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Runs `ashlar WORDS...` and returns its exit code. One table of subcommands drives dispatch and the overview.
int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log);

/// False for a command whose result is in files and whose lines only report progress (train): it continues when
/// standard output is lost. For all other commands, and for --help, the output is the result.
bool prints_its_result(const std::vector<std::string>& words);

}  // namespace ashlar::launch
