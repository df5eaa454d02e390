#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Runs `ashlar WORDS...` and returns its exit code. One table lists the subcommands, for the dispatch and the
/// overview.
int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log);

/// Throws input_error if there is no subcommand of that name.
void check_command(const std::string& name);

/// True if the result of a command is its output: for all commands except train, and for --help. The result of train is
/// in files, and its lines only report progress, so it continues when standard output is lost.
bool prints_its_result(const std::vector<std::string>& words);

}  // namespace ashlar::launch
