#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar tokenizer info|encode|decode ...`: `args` are the words after `tokenizer`; text and ids come from `in`.
/// Returns the exit code; failures are thrown as Error for main to print.
int run_tokenizer_command(std::span<const std::string> args, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace ashlar::launch
