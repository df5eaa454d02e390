#pragma once

#include <filesystem>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

// Both functions look only at the names of the files in a folder. Their input error says what the folder contains and
// what to do. Call refuse_adapter() before config.json is read and check_weight_files() after it, so that an unknown
// class is reported before missing weights.

/// Throws an input error for an adapter (PEFT, LoRA), which is not a complete model.
void refuse_adapter(const std::filesystem::path& directory);

/// Throws an input error for a folder that lacks config.json or weights in safetensors form (it has pickles, GGUF,
/// shards without an index, or no weights).
void check_weight_files(const std::filesystem::path& directory);

}  // namespace ashlar::hf
