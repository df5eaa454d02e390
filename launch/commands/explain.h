#pragma once

#include <string>
#include <vector>

namespace ashlar::commands {

/// `ashlar explain KEY|SECTION|all` and `ashlar explain --markdown`: prints the schema's text to standard output.
/// `arguments` are the words after the command's name. Returns the exit code. Throws Error(kInput) for anything else.
int explain_command(const std::vector<std::string>& arguments);

extern const char* const kExplainHelp;

}  // namespace ashlar::commands
