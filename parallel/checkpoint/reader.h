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

/// Requires that `path` is a regular file or a symbolic link to a regular file. Otherwise throws: a damaged-data error
/// if `path` does not exist, leads into a loop of links, or is anything else (a directory, a pipe); an input error if
/// permission is denied; the error of io::system_error for other failures.
void require_file_of_checkpoint(const std::filesystem::path& path);

/// Reads the text of a checkpoint's manifest. One rank calls it and broadcasts the text. Throws an input error if the
/// file is missing.
std::string read_manifest_text(const std::filesystem::path& directory);

/// Opens a checkpoint directory that was written on any mesh; tensors are assembled from the slices in all files. The
/// manifest is validated on opening. The size of a file is checked when it is first read, and the checksum of each
/// chunk when a read covers it. At most kMaxOpenFiles files are open at a time, for any number of writing ranks. Not
/// thread-safe.
/// Throws damaged-data errors (exit 3) that name file, tensor and chunk, and input errors (exit 2) for a directory that
/// is not a checkpoint, another format, or a newer version.
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
  const std::optional<TrainingState>& state() const { return manifest_.state; }  ///< absent in an imported checkpoint
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
  /// Fills `out` with a block of the tensor's matrix view, row-major. Throws Bug when the block is not inside the
  /// tensor.
  void read_block(const TensorRecord& tensor, const Block& block, std::span<std::byte> out);

  /// The share of the bytes that one of several ranks verifies. The default share is everything.
  struct Share {
    int rank = 0, size = 1;
    bool beyond_weights = false;  ///< skip files that hold only weights: loading the weights reads them completely
  };
  /// Reads every byte of the share and compares each chunk with its checksum. The shares of all ranks cover all bytes
  /// and have nearly equal sizes. The rank whose share contains the first chunk of a file also checks the header of the
  /// file against the manifest. Throws at the first damage. Returns early when `cancelled` returns true.
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
  std::vector<int64_t> open_;                 // indices of the open files, most recently used last
  struct SliceAt {
    const TensorRecord* tensor;
    const Slice* slice;
  };
  std::vector<std::vector<SliceAt>> slices_of_;  // indexed by file; filled when the first file is opened
};

}  // namespace ashlar::checkpoint
