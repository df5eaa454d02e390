#pragma once

#include <string>
#include <vector>

namespace ashlar::commands {

/// `ashlar explain KEY|SECTION|all` and `ashlar explain --markdown`: prints what the schema says to standard output.
/// Takes the arguments after the command's name, returns the exit code. Throws Error(kInput) for anything else.
int explain_command(const std::vector<std::string>& arguments);

extern const char* const kExplainHelp;

}  // namespace ashlar::commands
