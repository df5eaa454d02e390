#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/enum_names.h"
#include "launch/manual/command_text.h"

namespace ashlar::manual {

enum class Shell : uint8_t { kBash, kZsh, kFish };
constexpr auto names_of(Shell) { return enum_names<Shell>("bash", "zsh", "fish"); }

/// Returns a script that completes the words of `ashlar` in a shell: commands, subcommands, options and their values,
/// keys of the configuration and their values, and files. The script does not start the program.
std::string completions(Shell shell, std::span<const CommandText> commands);

}  // namespace ashlar::manual
