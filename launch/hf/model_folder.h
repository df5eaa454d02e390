#pragma once

#include <filesystem>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// Looks at the names in a folder before anything in it is read: input error that says what it is and what to do when
/// it is no model in safetensors form, such as an adapter (PEFT), pickles of PyTorch, GGUF, or shards without their
/// index.
void check_model_folder(const std::filesystem::path& directory);

}  // namespace ashlar::hf
