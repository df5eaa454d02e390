#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// One step of `normalizer` of tokenizer.json. It changes a valid UTF-8 text.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Returns false if the first character of the text was removed without replacement. The new first character then
  /// does not count as the start of the text, which matters to Metaspace with prepend_scheme "first".
  virtual bool apply(std::string& text, Regex::Scratch& scratch) const = 0;
};

/// Reads a normalizer: Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, Replace, Prepend or Precompiled. Throws
/// an input error that names any other type or an unknown field.
std::unique_ptr<Normalizer> read_normalizer(Fields fields);

/// Reads the `precompiled_charsmap` of SentencePiece: a double-array trie, as base64, of rules that replace a short
/// text by another text. A grapheme cluster shorter than 6 bytes is looked up as a whole. If no rule matches it, or if
/// it is longer, each of its characters is looked up separately. The shortest rule that matches a prefix of the
/// looked-up text replaces the whole looked-up text. Source: SentencePiece, src/normalizer.cc; Darts-clone for the
/// units of the array.
std::unique_ptr<Normalizer> precompiled_normalizer(const std::string& charsmap_base64, const Fields& fields);

/// Reads `content` of Replace. Throws an input error if it is longer than kMaxPatternBytes.
std::string read_content(Fields& fields);
/// While an object of this class exists, the steps that change a text of `bytes` bytes may grow it to at most 64 times
/// its length plus 64 KiB. Without the limit, steps that double the text could exhaust memory. The largest growth by a
/// published normalization rule is from 1 byte to 11 bytes.
class TextLimit {
 public:
  TextLimit(Regex::Scratch& scratch, size_t bytes) : scratch_(scratch) { scratch.most_bytes = 64 * bytes + 65536; }
  ~TextLimit() { scratch_.most_bytes = ~size_t{0}; }
  TextLimit(const TextLimit&) = delete;
  TextLimit& operator=(const TextLimit&) = delete;

 private:
  Regex::Scratch& scratch_;
};
/// Throws an input error when a text of `bytes` bytes exceeds the limit in `scratch`.
void check_growth(size_t bytes, const Regex::Scratch& scratch);

/// Reads `pattern` of Split and Replace. A string or {"String": ...} is matched literally, {"Regex": ...} is a pattern.
Regex read_pattern(Fields& fields, std::string_view key);
/// Returns a pattern that matches `text` literally.
std::string regex_escaped(std::string_view text);
/// Replaces every match by `by`. Like Normalizer::apply, returns false if the first character of the text was removed
/// without replacement.
bool replace_all(const Regex& pattern, std::string_view by, Regex::Scratch& scratch, std::string& text);

}  // namespace ashlar::data
