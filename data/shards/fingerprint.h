#pragma once

#include <string>

#include "data/shards/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Identifies a dataset by its content. Two datasets with equal fingerprints give a run the same samples and the same
/// tokenizer. The fingerprint does not depend on the path, the time of the build, the number of threads, or the
/// division into shards.
struct Fingerprint {
  std::string tokenizer;  ///< Tokenizer::fingerprint
  std::string tokens;     ///< 32 hex digits of the token stream of each part: ids, document ends, counts

  bool operator==(const Fingerprint&) const = default;
};

/// For a dataset in the old format (manifest version 1), which has no digest of its tokens, `tokens` is "old:" and a
/// digest of the sizes and checksums of its shards: equal for equal files, and never equal to that of a new dataset.
Fingerprint fingerprint_of(const Manifest& manifest);

/// The member `tokenizer` of a fingerprint, from the text of Tokenizer::to_json.
std::string tokenizer_fingerprint(const std::string& tokenizer_json);
/// The fingerprint of earlier releases: 32 hex digits over all of to_json. Their checkpoints contain it.
std::string old_tokenizer_fingerprint(const std::string& tokenizer_json);

/// True if two tokenizers give the same ids and texts. Fast if the texts of the two are equal.
bool same_tokenizer(const Tokenizer& one, const Tokenizer& other);

}  // namespace ashlar::data
