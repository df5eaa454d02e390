#pragma once

#include <string>

#include "data/shards/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// What a dataset is by its contents: two datasets with equal fingerprints give a run the same samples and the same
/// tokenizer, wherever they lie, whenever and on however many threads they were built, and however they are cut into
/// shards.
struct Fingerprint {
  std::string tokenizer;  ///< Tokenizer::fingerprint
  std::string tokens;     ///< 32 hex digits of the token stream of each part: ids, document ends, counts

  bool operator==(const Fingerprint&) const = default;
};

/// Of a dataset of the old form (manifest version 1), which holds no digest of its tokens, `tokens` is "old:" and a
/// digest of the sizes and checksums of its shards: equal for equal files, and never equal to that of a new dataset.
Fingerprint fingerprint_of(const Manifest& manifest);

/// `tokenizer` of a fingerprint, from what Tokenizer::to_json gives.
std::string tokenizer_fingerprint(const std::string& tokenizer_json);
/// What releases before had for it: 32 hex digits of all that to_json gives. Checkpoints of theirs hold it.
std::string old_tokenizer_fingerprint(const std::string& tokenizer_json);

/// Whether two tokenizers give the same ids and texts. Quick for equal ones.
bool same_tokenizer(const Tokenizer& one, const Tokenizer& other);

}  // namespace ashlar::data
