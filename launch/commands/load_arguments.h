#pragma once

#include <string>
#include <vector>

#include "launch/commands/arguments.h"
#include "launch/inference/model_loading.h"

namespace ashlar::launch {

/// Reads what `eval` and `generate` share: the options --dtype, --threads, --tensor, --pipeline and --expert, the
/// override of run.device, and the checkpoint, which must be the only positional word. Call it after all other options
/// are read. `usage` ends the error about other words.
inference::LoadOptions take_load_options(Arguments& arguments, const char* usage);

}  // namespace ashlar::launch
