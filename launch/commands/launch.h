#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar launch -np N [--hostfile F | --host a,b] [--dry-run] COMMAND ...`: writes the mpirun line that runs this
/// very program on N ranks, and runs it (MpirunChild; no signal may be blocked); of a dry run the line is the output.
/// Throws input_error for bad words, when there is no mpirun, and what `check_command` throws for a
/// COMMAND that is none.
int run_launch_command(std::span<const std::string> words, const std::function<void(const std::string&)>& check_command,
                       std::ostream& out);

extern const char* const kLaunchHelp;

}  // namespace ashlar::launch
