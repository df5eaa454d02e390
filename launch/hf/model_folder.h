#pragma once

#include <filesystem>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

// Both look at the names in a folder alone, and throw an input error that says what it is and what to do. The first
// comes before config.json is read, the second after: a class that is not read is said before a missing file.

/// An adapter (PEFT, LoRA) is no model.
void refuse_adapter(const std::filesystem::path& directory);

/// No weights in safetensors form: pickles of PyTorch, GGUF, shards without their index, or none; or no config.json.
void check_weight_files(const std::filesystem::path& directory);

}  // namespace ashlar::hf
