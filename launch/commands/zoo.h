#pragma once

#include <span>
#include <string>

#include "core/base/log.h"

namespace ashlar::launch {

extern const char* const kZooHelp;

/// `ashlar zoo`: the built-in published models, the options they use, and the comparison with a configuration.
int run_zoo_command(std::span<const std::string> words, Log& log);

}  // namespace ashlar::launch
