#pragma once

#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar generate CHECKPOINT ...`: text to standard output. Returns the exit code; throws Error.
int run_generate_command(std::span<const std::string> words, Session& session);

extern const char* const kGenerateHelp;

}  // namespace ashlar::launch
