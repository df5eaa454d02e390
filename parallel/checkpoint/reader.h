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

/// Nothing when `path` is a regular file or a link to one. A damaged error that says what is there instead: nothing, a
/// pipe, a link that leads in a circle. Input error when this user may not look, and as io::system_error otherwise.
void require_file_of_checkpoint(const std::filesystem::path& path);

/// The text of a checkpoint's manifest, for one rank to read and all to have. Input error when there is none.
std::string read_manifest_text(const std::filesystem::path& directory);

/// Opens a checkpoint directory, whatever mesh wrote it: tensors are assembled from the slices of all files. The
/// manifest is checked when it opens; a file when it is first read: its size, and the checksum of each chunk that a
/// read touches. Few files are open at a time (kMaxOpenFiles), however many ranks wrote. Not for several threads at
/// once.
/// Errors: damaged error (exit 3) naming file, tensor and chunk; input error (exit 2) for a directory that is no
/// checkpoint, another format, or a newer version.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path directory);
  /// With the text of its manifest, which somebody else has read.
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

  /// All tensors, ordered by name; weights and optimizer state told apart by `group`.
  const std::vector<TensorRecord>& tensors() const { return manifest_.tensors; }
  const TensorRecord* find(std::string_view name) const;  ///< null when there is none
  const TensorRecord& at(std::string_view name) const;    ///< throws an input error naming it
  bool has_optimizer_state() const;

  /// Fills `out` (exactly the tensor's bytes) with the whole tensor, row-major, in its stored dtype.
  void read(std::string_view name, std::span<std::byte> out);
  /// Fills `out` with a block of the tensor's matrix view, row-major. Bug when the block is not inside the tensor.
  void read_block(const TensorRecord& tensor, const Block& block, std::span<std::byte> out);

  /// What one of several ranks verifies. Default: everything.
  struct Share {
    int rank = 0, size = 1;
    bool beyond_weights = false;  ///< only of the files that reading all weights does not read whole
  };
  /// Reads every byte of its share of the files and compares it with its checksum; all shares are all bytes, and of
  /// nearly equal size whatever the files. Checks every file's header against the manifest, by the share that holds
  /// it. Throws at the first damage. Returns early when `cancelled` says so.
  void verify(const Share& share, const std::function<bool()>& cancelled = {});
  void verify() { verify(Share{}); }

  static constexpr size_t kMaxOpenFiles = 16;

 private:
  class File;
  File& file(int64_t index);
  void list_slices();

  std::filesystem::path path_;
  Manifest manifest_;
  std::vector<std::unique_ptr<File>> files_;  // made when first read
  std::vector<int64_t> open_;                 // files with a descriptor, the one used last at the end
  struct SliceAt {
    const TensorRecord* tensor;
    const Slice* slice;
  };
  std::vector<std::vector<SliceAt>> slices_of_;  // by file; empty until a file is made
};

}  // namespace ashlar::checkpoint
