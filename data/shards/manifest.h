#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/enum_names.h"
#include "data/digest.h"

namespace ashlar::data {

/// The two parts of a dataset. The validation part is read in order, the train part in a shuffled order (WindowOrder).
enum class Part : uint8_t { kTrain = 0, kValidation = 1 };
inline constexpr Part kParts[] = {Part::kTrain, Part::kValidation};
constexpr auto names_of(Part) { return enum_names<Part>("train", "validation"); }
using ashlar::name_of;

inline constexpr int64_t kChunkTokens = 65536;  ///< tokens per chunk, the unit of checksums and reads

/// One shard file. Every shard of a part except the last consists of whole chunks. So chunk c of the part has the
/// tokens [c*kChunkTokens, (c+1)*kChunkTokens) of the part's token stream.
struct ShardInfo {
  std::string file;  ///< file name in the dataset's directory
  int64_t tokens = 0;
  int64_t documents = 0;  ///< number of documents that begin in this shard
  int64_t bytes = 0;      ///< size of the file
  uint32_t crc32 = 0;     ///< CRC-32 of the whole file
  Digest digest;          ///< digest of the tokens of the shard, see chunk_digest; zero in the old format
};

struct PartInfo {
  int64_t tokens = 0;
  int64_t documents = 0;
  std::vector<ShardInfo> shards;
};

/// Content of `manifest.json`, the description of a dataset. The file is written last, so a directory with a manifest
/// is complete.
struct Manifest {
  static constexpr int kVersion = 2;
  static constexpr int kOldVersion = 1;  ///< format without digests: read, never written by a build

  int version = kVersion;

  std::string tokenizer_json;
  std::string tokenizer_hash;
  int32_t vocab_size = 0;
  int32_t eod_id = 0;
  bool wide = false;  ///< token ids are stored as uint32, not as uint16
  double validation_share = 0;
  std::string validation_rule;     ///< "documents", "tail" or "none"
  std::string source_fingerprint;  ///< hash of the options and the sizes of the inputs
  /// Digest of the text of the inputs; empty in the old format. Two builds with equal source_fingerprint and equal
  /// source_digest give the same dataset.
  std::string source_digest;
  int64_t source_files = 0;
  int64_t source_bytes = 0;
  int64_t source_empty_documents = 0;  ///< number of documents skipped because they have no text
  /// Treatment of special-token spellings: "text", "parse" or "refuse"; empty in older manifests.
  std::string special_tokens;
  /// Number of special-token spellings; under "parse" only end-of-document tokens.
  int64_t special_spellings = 0;
  /// Treatment of invalid lines: "skip" or "replace"; empty if they were an error.
  std::string bad_lines;
  int64_t bad_lines_left_out = 0, bad_places = 0;
  PartInfo parts[2];

  const PartInfo& part(Part p) const { return parts[static_cast<int>(p)]; }
  PartInfo& part(Part p) { return parts[static_cast<int>(p)]; }
  bool old_form() const { return version == kOldVersion; }
};

/// Returns the exact bytes of manifest.json, including its own checksum. Deterministic.
std::string manifest_text(const Manifest& manifest);

/// Returns the bytes of manifest.json in `directory`. Throws an input error if the file is missing.
std::string read_manifest_text(const std::string& directory);

/// Parses the bytes of a manifest.json. Throws a damaged-data error if the text does not match its checksum or lacks an
/// entry. Throws an input error that names the format and the version if this program cannot read this format or
/// version. `directory` is used only in error messages.
Manifest parse_manifest(const std::string& text, const std::string& directory);

inline Manifest read_manifest(const std::string& directory) {
  return parse_manifest(read_manifest_text(directory), directory);
}

}  // namespace ashlar::data
