#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar launch -np N [--hostfile F | --host a,b] [--dry-run] COMMAND ...`: prints the mpirun command that runs this
/// program on N ranks, and runs it (MpirunChild; no signal may be blocked). With --dry-run the command is the output.
/// Throws input_error for bad words and without mpirun, and the error of `check_command` for an unknown COMMAND.
int run_launch_command(std::span<const std::string> words, const std::function<void(const std::string&)>& check_command,
                       std::ostream& out);

extern const char* const kLaunchHelp;

}  // namespace ashlar::launch
