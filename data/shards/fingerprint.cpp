#include "data/shards/fingerprint.h"

#include "core/base/hex.h"
#include "core/base/strings.h"
#include "data/digest.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

std::string tokenizer_fingerprint(const std::string& tokenizer_json) {
  return tokenizer_from_json(tokenizer_json)->fingerprint();
}

std::string old_tokenizer_fingerprint(const std::string& tokenizer_json) { return digest_of(tokenizer_json).hex(); }

bool same_tokenizer(const Tokenizer& one, const Tokenizer& other) {
  return one.hash() == other.hash() || one.fingerprint() == other.fingerprint();
}

Fingerprint fingerprint_of(const Manifest& manifest) {
  // The chunk size is included, since the order of samples depends on it.
  std::string text = str_cat("chunks of ", kChunkTokens);
  for (const Part part : kParts) {
    const PartInfo& info = manifest.part(part);
    text += str_cat("; ", name_of(part), " ", info.tokens);
    if (manifest.old_form()) {
      for (const ShardInfo& s : info.shards)
        text += str_cat(" (", s.tokens, " ", s.documents, " ", s.bytes, " ", hex32(s.crc32), ")");
    } else {
      Digest sum;
      for (const ShardInfo& s : info.shards) sum += s.digest;
      text += str_cat(" ", sum.hex());
    }
  }
  return {.tokenizer = tokenizer_fingerprint(manifest.tokenizer_json),
          .tokens = str_cat(manifest.old_form() ? "old:" : "", digest_of(text).hex())};
}

}  // namespace ashlar::data
