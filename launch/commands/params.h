#pragma once

#include <span>
#include <string>

#include "core/base/log.h"

namespace ashlar::launch {

/// `ashlar params CONFIG [section.key=value ...]`: counts by component; nothing is allocated. Throws Error.
int run_params_command(std::span<const std::string> words, Log& log);

extern const char* const kParamsHelp;

}  // namespace ashlar::launch
