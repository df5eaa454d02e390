#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "launch/gguf/gguf_file.h"
#include "launch/hf/hf_checkpoint.h"

namespace ashlar::gguf {

struct Report {
  std::filesystem::path file;
  std::string_view architecture;
  int64_t tensors = 0, bytes = 0;
};

/// Name of the file of an export, in its folder.
inline constexpr const char* kModelFile = "model.gguf";

/// Writes `directory`/model.gguf. Matrices get the type `type`; norms, biases and position tables stay fp32, as
/// llama.cpp expects. Host memory: a few copies of the largest tensor. Throws an input error, before anything is
/// written, for what GGUF or llama.cpp cannot express, and the errors of write_file. Called by one rank.
Report export_gguf(const hf::OpenedExport& opened, const std::filesystem::path& directory, TensorType type);

}  // namespace ashlar::gguf
