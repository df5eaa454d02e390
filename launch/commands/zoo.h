#pragma once

#include <span>
#include <string>

#include "core/base/log.h"

namespace ashlar::launch {

extern const char* const kZooHelp;

/// `ashlar zoo`: the published models that the program carries, who uses what, and how a configuration compares.
int run_zoo_command(std::span<const std::string> words, Log& log);

}  // namespace ashlar::launch
