#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/manual/command_text.h"
#include "launch/terminal/status_line.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Runs `ashlar WORDS...` and returns its exit code. A table in commands.cpp lists the subcommands.
int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log, terminal::StatusLine& status);

/// Names, summaries and help texts of all subcommands, in the order of `ashlar --help`.
std::vector<manual::CommandText> command_texts();

/// Throws an input error if there is no subcommand of that name.
void check_command(const std::string& name);

/// True if the result of the command is what it prints. This is false only for train without --help: the result of
/// train is in files, and its lines only report progress, so train continues when standard output is lost.
bool prints_its_result(const std::vector<std::string>& words);

}  // namespace ashlar::launch
