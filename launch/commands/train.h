#pragma once

#include <span>
#include <string>

#include "core/base/log.h"
#include "launch/training/signals.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar train CONFIG [section.key=value ...] [--restart]`. All ranks call it. Returns the exit code;
/// throws Error.
int run_train_command(std::span<const std::string> words, training::SignalWatch& signals, comm::Bootstrap& bootstrap,
                      Log& log);

extern const char* const kTrainHelp;

}  // namespace ashlar::launch
