#pragma once

#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar eval CHECKPOINT --data DIR ...`: loss on a dataset's validation part. Returns the exit code; throws Error.
int run_eval_command(std::span<const std::string> words, Session& session);

extern const char* const kEvalHelp;

}  // namespace ashlar::launch
