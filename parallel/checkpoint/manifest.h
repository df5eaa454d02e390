#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/checksum.h"
#include "core/io/safetensors.h"

namespace ashlar::checkpoint {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kFormat = "ashlar-checkpoint";
inline constexpr int64_t kVersion = 1;  ///< newest version this program writes and reads

/// Progress of a run besides its tensors. The learning rate depends only on the step, and every random number only on
/// (seed, rng_stream, step, index), so no other state is needed to resume bitwise.
struct TrainingState {
  int64_t step = 0;              ///< optimizer steps done
  int64_t position_samples = 0;  ///< next sample of the training stream
  int64_t tokens = 0;            ///< tokens seen
  uint64_t seed = 0;             ///< run.seed, for initial values, dropout and the order of samples
  uint64_t philox_step = 0;      ///< Philox step counter of the next step
  bool operator==(const TrainingState&) const = default;
};

/// Identifies the content of one data source of a run by the digests of its tokenizer and tokens, without path and
/// time.
struct DataRecord {
  std::string tokenizer, tokens;
  std::string old_tokenizer =
      "";  ///< the tokenizer's fingerprint in older releases; for current data only, never stored
  bool operator==(const DataRecord& other) const { return tokenizer == other.tokenizer && tokens == other.tokens; }
};

/// A block of the matrix view [rows, cols] of a global tensor: rows = product of all dimensions except the last, cols =
/// the last (a vector is one row, a scalar 1x1).
struct Block {
  int64_t row = 0, col = 0;    ///< first row and column
  int64_t rows = 0, cols = 0;  ///< size
  bool operator==(const Block&) const = default;
};

/// A block and its location: tensor `stored_as` of file number `file`.
struct Slice {
  int64_t file = 0;       ///< index into Manifest::files
  std::string stored_as;  ///< usually the tensor's global name; a file with two blocks of one tensor needs two names
  Block block;
  bool operator==(const Slice&) const = default;
};

enum class Group : uint8_t { kWeights, kOptimizer };
constexpr auto names_of(Group) { return enum_names<Group>("weights", "optimizer"); }
using ashlar::name_of;

/// A global tensor. Its slices tile it: no gap, no overlap.
struct TensorRecord : io::TensorSpec {
  Group group = Group::kWeights;
  std::vector<Slice> slices;

  int64_t matrix_rows() const;
  int64_t matrix_cols() const;
};

struct FileRecord {
  std::string name;  ///< inside the checkpoint directory
  io::ChunkChecksums checksums;
};

/// `manifest.json`: the content of a checkpoint. Written last, so a directory with a manifest is complete.
struct Manifest {
  std::optional<TrainingState> state;  ///< absent: weights only, as `ashlar import` makes them
  std::string config_toml;             ///< the resolved configuration
  std::string tokenizer_json;          ///< Tokenizer::to_json; empty if none
  io::Metadata metadata;
  std::vector<DataRecord> data;  ///< records of the run's sources, in order; empty: an import, or an older checkpoint
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  ///< ordered by name; names are unique over both groups

  int64_t total_bytes() const;  ///< size of all files
};

/// The exact bytes of the manifest. In all versions the first line is `{"checksum":"CRC",` with the CRC-32 (as zlib,
/// eight hex digits) of everything after that line, so that damage can be distinguished from a newer version before
/// fields are parsed. Throws an input error for text that is not UTF-8, Bug for tensors that are not tiled by their
/// slices.
std::string manifest_text(const Manifest& manifest);

/// The text of one rank's part, sent to rank 0: its files and tensors. The slices need not tile the tensors. Throws as
/// manifest_text.
std::string part_text(const Manifest& part);
Manifest parse_part(std::string_view text);  ///< Bug for invalid text

/// Parses a manifest; `path` names it in errors. Damaged-data error (exit 3) for any byte that differs from what was
/// written, or for inconsistent fields. Input error (exit 2) for another format or a newer version.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

}  // namespace ashlar::checkpoint
