#pragma once

#include <string>

#include "launch/hf/hf_checkpoint.h"

namespace ashlar::launch {

/// Returns the text of README.md in an exported folder: what the model is, on what and how long it was trained, its
/// losses where the run's metrics.jsonl is beside the checkpoint, its configuration without paths, and the program's
/// version.
std::string model_card(const hf::OpenedExport& opened);

}  // namespace ashlar::launch
