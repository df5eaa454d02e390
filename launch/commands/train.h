#pragma once

#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar train CONFIG [section.key=value ...] [--restart]`. All ranks call it. Returns the exit code;
/// throws Error.
int run_train_command(std::span<const std::string> words, Session& session);

extern const char* const kTrainHelp;

}  // namespace ashlar::launch
