#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// One step of `normalizer` of tokenizer.json: changes a valid UTF-8 text.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// False when the text's first character was removed without replacement: the new first character was not at the
  /// start of the text, which matters to later steps (Metaspace "first").
  virtual bool apply(std::string& text, Regex::Scratch& scratch) const = 0;
};

/// Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, Replace, Prepend, Precompiled. Another type or an unknown
/// field is an input error with its name.
std::unique_ptr<Normalizer> read_normalizer(Fields fields);

/// The `precompiled_charsmap` of SentencePiece: rules from short texts to texts in a double array, as base64. A
/// grapheme shorter than 6 bytes is looked up as a whole, otherwise character by character; the shortest rule that is a
/// prefix replaces all of it. Source: SentencePiece, src/normalizer.cc; Darts-clone for the array's units.
std::unique_ptr<Normalizer> precompiled_normalizer(const std::string& charsmap_base64, const Fields& fields);

/// `content` of Replace, at most kMaxPatternBytes long.
std::string read_content(Fields& fields);
/// While it exists, rules may grow a text of `bytes` to at most 64 times its length (plus 64 KB): steps that double it
/// could otherwise exhaust memory. The largest growth of a published rule is from 1 byte to 11.
class TextLimit {
 public:
  TextLimit(Regex::Scratch& scratch, size_t bytes) : scratch_(scratch) { scratch.most_bytes = 64 * bytes + 65536; }
  ~TextLimit() { scratch_.most_bytes = ~size_t{0}; }
  TextLimit(const TextLimit&) = delete;
  TextLimit& operator=(const TextLimit&) = delete;

 private:
  Regex::Scratch& scratch_;
};
/// Throws an input error when a text exceeds its limit.
void check_growth(size_t bytes, const Regex::Scratch& scratch);

/// `pattern` of Split and Replace: {"String": ...} literally, or {"Regex": ...}.
Regex read_pattern(Fields& fields, std::string_view key);
/// A pattern that matches `text` itself.
std::string regex_escaped(std::string_view text);
/// Replaces every match. Returns false as in Normalizer::apply.
bool replace_all(const Regex& pattern, std::string_view by, Regex::Scratch& scratch, std::string& text);

}  // namespace ashlar::data
