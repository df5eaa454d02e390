#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/safetensors_model.h"
#include "launch/hf/hf_config.h"
#include "launch/hf/hf_tensors.h"

namespace ashlar::hf {

/// A Hugging Face model directory read as one of ours: config, and every tensor by our global name in the dtype of
/// the file, [out, in] row-major. Nothing is held in memory but the last fused or transposed tensor. One thread.
class ImportedModel {
 public:
  const HfConfig& config() const { return config_; }
  /// What a reader may not expect, from the config and from the tensors (old buffers left out). To be printed.
  const std::vector<std::string>& notes() const { return config_.notes; }

  /// Name, shape and dtype of each of our tensors, in model order.
  const std::vector<io::TensorSpec>& tensors() const { return tensors_; }

  /// Fills `out`, exactly the tensor's bytes. Bug for a name that tensors() lacks.
  void read(std::string_view name, std::span<std::byte> out);

 private:
  friend ImportedModel import_hf(const std::filesystem::path&, const std::vector<std::string>&);
  ImportedModel(io::SafetensorsModel files, HfConfig config) : files_(std::move(files)), config_(std::move(config)) {}

  struct Place {
    size_t mapping;
    size_t piece;
  };
  void bind(const std::string& directory);
  void check_tied_head(const std::string& directory);

  io::SafetensorsModel files_;
  HfConfig config_;
  std::vector<TensorMapping> mappings_;
  std::vector<std::string> file_names_;  // of each mapping, as the file spells it
  std::vector<io::TensorSpec> tensors_;
  std::unordered_map<std::string, Place> places_;
  std::string transposed_name_;
  std::vector<std::byte> transposed_;
};

/// Opens and checks a directory as transformers writes it: config.json, and model.safetensors or its shards. A file
/// without its prefix, or with another name of the head, is read too. Reads headers only (and a repeated tied head,
/// which must equal the embedding). Input error naming what is unknown, missing, or of another shape or dtype (F32,
/// F16, BF16 and F64 are read); damaged error for a file that is no safetensors file.
ImportedModel import_hf(const std::filesystem::path& directory, const std::vector<std::string>& ignored_keys = {});

/// Where an export takes our tensors from.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Null when there is no such tensor.
  virtual const io::TensorSpec* find(std::string_view name) const = 0;
  virtual void read(std::string_view name, std::span<std::byte> out) = 0;
};

struct Exported {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< of model.safetensors
  std::string dtype;  ///< of most elements, as config.json says it
};

/// Writes `directory`/model.safetensors and config.json, the latter last. Without `dtype` each tensor keeps the type
/// of the source, so that export(import(x)) has the tensors of x bit for bit; with it, values are rounded once to
/// nearest even (to fp16 through fp32). Memory: one tensor. Errors (exit 2): a directory that holds a model already, a
/// source tensor missing or of another shape, a finite value that the dtype cannot hold; exit 6 for a full disk.
/// Nothing is left under a final name then but what was there before.
Exported export_hf(const HfConfig& config, TensorSource& source, const std::filesystem::path& directory,
                   std::optional<io::FileDType> dtype = std::nullopt);

}  // namespace ashlar::hf
