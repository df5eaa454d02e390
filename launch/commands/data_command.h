#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar data build|inspect|verify ...`: `args` are the words after `data`. Results go to `out`, progress and remarks
/// to `err`. Returns the exit code (0; 3 when `verify` finds damage); other failures are thrown as Error for main to
/// print.
int run_data_command(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace ashlar::launch
