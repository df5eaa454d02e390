#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/posix_file.h"
#include "core/io/safetensors.h"

namespace ashlar::io {

/// A directory of safetensors files that is read as one set of tensors: `model.safetensors`, or the shards listed in
/// the `weight_map` of `model.safetensors.index.json`. If both exist, `model.safetensors` is used, as in transformers.
/// At most kMaxOpenFiles files are open at a time, for any number of shards. Not thread-safe.
class SafetensorsModel {
 public:
  static constexpr size_t kMaxOpenFiles = 16;

  /// Opens the files one after another and validates their headers. Throws an input error if the directory has neither
  /// `model.safetensors` nor an index, and a damaged-data error if index and shards disagree (a tensor is listed but
  /// absent, present but not listed, or in two shards).
  explicit SafetensorsModel(const std::filesystem::path& directory);

  const std::vector<std::string>& names() const { return names_; }  ///< sorted
  const TensorEntry* find(std::string_view name) const;             ///< null if absent
  const TensorEntry& at(std::string_view name) const;               ///< throws a damaged-data error if absent

  /// Reads the whole tensor into `out`. Throws a damaged-data error if the size of the file has changed since its
  /// header was read.
  void read(std::string_view name, std::span<std::byte> out);
  void read_range(std::string_view name, int64_t begin_byte, std::span<std::byte> out);

 private:
  struct File {
    std::filesystem::path path;
    int64_t bytes = 0;
    std::optional<InputFile> open;
  };
  struct Place {
    size_t file = 0;
    TensorEntry entry;
  };
  void read_shards(const std::filesystem::path& index);
  SafetensorsReader add_file(const std::filesystem::path& path);
  const Place& place_of(std::string_view name) const;
  const InputFile& opened(size_t file);

  std::filesystem::path directory_;
  std::vector<File> files_;
  std::vector<size_t> open_;  // indices in files_ of the open files, most recently used last
  std::map<std::string, Place, std::less<>> where_;
  std::vector<std::string> names_;
};

}  // namespace ashlar::io
