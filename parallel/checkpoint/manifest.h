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
inline constexpr int64_t kVersion = 1;  ///< version that this program writes, and the newest that it reads

/// State of a run apart from its tensors. The learning rate depends only on the step, and every random number only on
/// (seed, rng_stream, step, index), so no other state is needed to resume bitwise.
struct TrainingState {
  int64_t step = 0;              ///< number of optimizer steps done
  int64_t position_samples = 0;  ///< index of the next sample in the training stream
  int64_t tokens = 0;            ///< number of tokens trained on
  uint64_t seed = 0;             ///< run.seed, for initial values, dropout and the order of samples
  uint64_t philox_step = 0;      ///< Philox step counter of the next step
  bool operator==(const TrainingState&) const = default;
};

/// Identifies the content of one data source of a run by the digests of its tokenizer and tokens. Path and time are not
/// part of it.
struct DataRecord {
  std::string tokenizer, tokens;
  /// Digest of the tokenizer as older releases computed it. Set for the datasets of the current run, never stored.
  std::string old_tokenizer = "";
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
  std::string name;  ///< file name inside the checkpoint directory
  io::ChunkChecksums checksums;
};

/// `manifest.json`: the content of a checkpoint. Written last, so a directory with a manifest is complete.
struct Manifest {
  std::optional<TrainingState> state;  ///< absent if the checkpoint has weights only, e.g. after `ashlar import`
  std::string config_toml;             ///< the resolved configuration
  std::string tokenizer_json;          ///< result of Tokenizer::to_json; empty if there is no tokenizer
  io::Metadata metadata;
  /// The run's data sources, in order. Empty after an import and in checkpoints of older releases.
  std::vector<DataRecord> data;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  ///< weights and optimizer state, ordered by name; names are unique

  int64_t total_bytes() const;  ///< size of all files
};

/// Returns the exact bytes of the manifest file. In all format versions the first line is `{"checksum":"CRC",`, where
/// CRC is the CRC-32 (as in zlib, eight hex digits) of everything after that line. So a reader detects damage before it
/// parses the version, and does not mistake damage for a newer version. Throws an input error for text that is not
/// UTF-8, and Bug if the slices do not tile their tensor.
std::string manifest_text(const Manifest& manifest);

/// Returns the text in which a rank sends the list of its files and tensors to rank 0. The slices need not tile the
/// tensors. Throws an input error for text that is not UTF-8.
std::string part_text(const Manifest& part);
Manifest parse_part(std::string_view text);  ///< throws Bug for invalid text

/// Parses a manifest; `path` names it in errors. Throws a damaged-data error (exit 3) for any byte that differs from
/// what was written, and for inconsistent fields. Throws an input error (exit 2) for another format or a newer version.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

}  // namespace ashlar::checkpoint
