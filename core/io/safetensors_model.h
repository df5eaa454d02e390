#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace ashlar::io {

/// A directory of safetensors files read as one set of tensors: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` names in its `weight_map`. When both are there the single file counts, as
/// transformers reads them.
class SafetensorsModel {
 public:
  /// Opens all files and checks their headers. An input error when the directory holds neither; a damaged error when
  /// index and shards disagree (a tensor named but absent, present but unnamed, or in two shards).
  explicit SafetensorsModel(const std::filesystem::path& directory);

  const std::vector<std::string>& names() const { return names_; }  ///< sorted
  const TensorEntry* find(std::string_view name) const;             ///< null when there is no such tensor
  const TensorEntry& at(std::string_view name) const;               ///< throws a damaged error naming it

  void read(std::string_view name, std::span<std::byte> out) const;
  void read_range(std::string_view name, int64_t begin_byte, std::span<std::byte> out) const;

 private:
  const SafetensorsReader& reader_of(std::string_view name) const;

  std::filesystem::path directory_;
  std::vector<SafetensorsReader> readers_;
  std::map<std::string, size_t, std::less<>> where_;  // tensor -> reader
  std::vector<std::string> names_;
};

}  // namespace ashlar::io
