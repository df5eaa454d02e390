#pragma once

#include <span>
#include <string>

#include "core/base/log.h"
#include "launch/training/signals.h"

namespace ashlar::launch {

/// `ashlar train CONFIG [section.key=value ...] [--restart]`. Returns the exit code; throws Error.
int run_train_command(std::span<const std::string> words, const training::SignalWatch& signals, Log& log);

extern const char* const kTrainHelp;

}  // namespace ashlar::launch
