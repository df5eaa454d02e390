#pragma once

#include <string>

#include "data/shards/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Identifies a dataset by its content. Two datasets with equal fingerprints give a run the same samples and the same
/// tokenizer. The fingerprint does not depend on the path, the time of the build, the number of threads, or (except in
/// the old format) the division into shards.
struct Fingerprint {
  std::string tokenizer;  ///< result of Tokenizer::fingerprint
  std::string tokens;     ///< hash of the token count and token digest of each part (old format: see below)

  bool operator==(const Fingerprint&) const = default;
};

/// Returns the fingerprint of a dataset. A dataset in the old format (manifest version 1) has no digest of its tokens.
/// Its Fingerprint::tokens is "old:" and a digest of the sizes and checksums of its shards. So two old datasets with
/// equal shard files have equal fingerprints, and no old dataset has the fingerprint of a dataset in the new format.
Fingerprint fingerprint_of(const Manifest& manifest);

/// Returns Fingerprint::tokenizer for a tokenizer that is given as the text of Tokenizer::to_json.
std::string tokenizer_fingerprint(const std::string& tokenizer_json);
/// Returns the tokenizer fingerprint in the form of earlier releases, which is stored in their checkpoints: the digest
/// of the whole text of to_json, as 32 hex digits.
std::string old_tokenizer_fingerprint(const std::string& tokenizer_json);

/// True if two tokenizers give the same ids and texts. Fast if both have the same to_json text.
bool same_tokenizer(const Tokenizer& one, const Tokenizer& other);

}  // namespace ashlar::data
