#pragma once

#include <span>
#include <string>

#include "launch/manual/command_text.h"

namespace ashlar::manual {

/// Returns the man page ashlar(1) as mdoc: the help texts of all commands, the sections of the configuration and the
/// exit codes. `date` is that of the program, e.g. "November 27, 2026", or empty.
std::string man_page(std::span<const CommandText> commands, const std::string& date);

}  // namespace ashlar::manual
