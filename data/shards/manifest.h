#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/enum_names.h"
#include "data/digest.h"

namespace ashlar::data {

/// The two parts of a dataset. The validation part is read in order, the train part through the sampler.
enum class Part : uint8_t { kTrain = 0, kValidation = 1 };
inline constexpr Part kParts[] = {Part::kTrain, Part::kValidation};
constexpr auto names_of(Part) { return enum_names<Part>("train", "validation"); }
using ashlar::name_of;

inline constexpr int64_t kChunkTokens = 65536;  ///< tokens per chunk, the unit of checksums and reads

/// One shard file. Every shard of a part except the last has whole chunks, so that chunk c of the part is tokens
/// [c*kChunkTokens, (c+1)*kChunkTokens) of its stream.
struct ShardInfo {
  std::string file;  ///< name inside the dataset's directory
  int64_t tokens = 0;
  int64_t documents = 0;  ///< documents that begin in this shard
  int64_t bytes = 0;      ///< size of the file
  uint32_t crc32 = 0;     ///< CRC-32 of the whole file
  Digest digest;          ///< digest of its tokens, see chunk_digest; zero in the old format
};

struct PartInfo {
  int64_t tokens = 0;
  int64_t documents = 0;
  std::vector<ShardInfo> shards;
};

/// `manifest.json`: description of a dataset. Written last, so a directory with a manifest is complete.
struct Manifest {
  static constexpr int kVersion = 2;
  static constexpr int kOldVersion = 1;  ///< format without digests: read, never written by a build

  int version = kVersion;

  std::string tokenizer_json;
  std::string tokenizer_hash;
  int32_t vocab_size = 0;
  int32_t eod_id = 0;
  bool wide = false;  ///< tokens stored as uint32 rather than uint16
  double validation_share = 0;
  std::string validation_rule;     ///< "documents", "tail" or "none"
  std::string source_fingerprint;  ///< hash of options and the sizes of the inputs
  std::string
      source_digest;  ///< of their text; if both are equal, a rebuild gives the same dataset. Empty in the old format
  int64_t source_files = 0;
  int64_t source_bytes = 0;
  int64_t source_empty_documents = 0;  ///< skipped because they have no text
  std::string special_tokens;          ///< treatment in text: "text", "parse" or "refuse"; empty in older manifests
  int64_t special_spellings = 0;       ///< number in the text; under "parse" only end-of-document tokens
  std::string bad_lines;               ///< "skip" or "replace"; empty: an error
  int64_t bad_lines_left_out = 0, bad_places = 0;
  PartInfo parts[2];

  const PartInfo& part(Part p) const { return parts[static_cast<int>(p)]; }
  PartInfo& part(Part p) { return parts[static_cast<int>(p)]; }
  bool old_form() const { return version == kOldVersion; }
};

/// The exact bytes of manifest.json, including its own checksum. Deterministic.
std::string manifest_text(const Manifest& manifest);

/// The bytes of DIR/manifest.json. Missing: input error.
std::string read_manifest_text(const std::string& directory);

/// Parses those bytes. Damaged-data error if any byte differs from what `manifest_text` would write. Input error with
/// the version found for a newer version or another format. `directory` is used in errors.
Manifest parse_manifest(const std::string& text, const std::string& directory);

inline Manifest read_manifest(const std::string& directory) {
  return parse_manifest(read_manifest_text(directory), directory);
}

}  // namespace ashlar::data
