#pragma once

#include <span>
#include <string>

#include "core/base/log.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar generate CHECKPOINT ...`: text to standard output. Returns the exit code; throws Error.
int run_generate_command(std::span<const std::string> words, comm::Bootstrap& bootstrap, Log& log);

extern const char* const kGenerateHelp;

}  // namespace ashlar::launch
