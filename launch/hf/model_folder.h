#pragma once

#include <filesystem>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

// Both functions look only at the names of the files in a folder. Their input error says what the folder holds and what
// to do. Call the first before config.json is read and the second after that, so that an unknown class is reported
// before missing weights.

/// Throws an input error for an adapter (PEFT, LoRA), which is no model.
void refuse_adapter(const std::filesystem::path& directory);

/// Input error for a folder without weights in safetensors form (pickles, GGUF, no index, nothing) or config.json.
void check_weight_files(const std::filesystem::path& directory);

}  // namespace ashlar::hf
