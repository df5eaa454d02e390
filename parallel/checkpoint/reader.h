#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

/// Does nothing if `path` is a regular file or a link to one. Otherwise a damaged-data error says what it is: missing,
/// a pipe, a loop of links. Without read permission: input error. Other system errors: as io::system_error.
void require_file_of_checkpoint(const std::filesystem::path& path);

/// The text of a checkpoint's manifest, for one rank to read and send to all. Input error if missing.
std::string read_manifest_text(const std::filesystem::path& directory);

/// Opens a checkpoint directory that was written on any mesh; tensors are assembled from the slices in all files. The
/// manifest is validated on opening. The size of a file is checked when it is first read, and the checksum of each
/// chunk when a read covers it. At most kMaxOpenFiles are open at a time, for any number of writing ranks. Not
/// thread-safe.
/// Errors: damaged-data error (exit 3) with file, tensor and chunk; input error (exit 2) for a directory that is not a
/// checkpoint, another format, or a newer version.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path directory);
  /// Opens a checkpoint whose manifest the caller has read.
  CheckpointReader(std::filesystem::path directory, std::string_view manifest_text);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const std::optional<TrainingState>& state() const { return manifest_.state; }  ///< absent in an import
  const std::string& config_toml() const { return manifest_.config_toml; }
  const std::string& tokenizer_json() const { return manifest_.tokenizer_json; }
  const io::Metadata& metadata() const { return manifest_.metadata; }

  /// All tensors, ordered by name; `group` distinguishes weights and optimizer state.
  const std::vector<TensorRecord>& tensors() const { return manifest_.tensors; }
  const TensorRecord* find(std::string_view name) const;  ///< null if absent
  const TensorRecord& at(std::string_view name) const;    ///< throws an input error with the name if absent
  bool has_optimizer_state() const;

  /// Fills `out` (exactly the tensor's bytes) with the whole tensor, row-major, in its stored dtype.
  void read(std::string_view name, std::span<std::byte> out);
  /// Fills `out` with a block of the tensor's matrix view, row-major. Bug when the block is not inside the tensor.
  void read_block(const TensorRecord& tensor, const Block& block, std::span<std::byte> out);

  /// The share of the bytes that one of several ranks verifies. Default: everything.
  struct Share {
    int rank = 0, size = 1;
    bool beyond_weights = false;  ///< only files that loading all weights does not read completely
  };
  /// Reads every byte of its share and compares it with its checksum. The shares together cover all bytes and have
  /// nearly equal sizes. Each file's header is checked against the manifest, by the share that contains it. Throws at
  /// the first damage. Returns early when `cancelled` returns true.
  void verify(const Share& share, const std::function<bool()>& cancelled = {});
  void verify() { verify(Share{}); }

  static constexpr size_t kMaxOpenFiles = 16;

 private:
  class File;
  File& file(int64_t index);
  void list_slices();

  std::filesystem::path path_;
  Manifest manifest_;
  std::vector<std::unique_ptr<File>> files_;  // created on first read
  std::vector<int64_t> open_;                 // open files, most recently used last
  struct SliceAt {
    const TensorRecord* tensor;
    const Slice* slice;
  };
  std::vector<std::vector<SliceAt>> slices_of_;  // by file; empty until a file is created
};

}  // namespace ashlar::checkpoint
