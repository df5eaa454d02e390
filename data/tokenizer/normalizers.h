#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// One step of `normalizer` of tokenizer.json: changes a text that is valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// False when the text's first character is gone without anything in its place: what begins the text now came from
  /// behind it, and is not the start of a text for the steps that ask (Metaspace "first").
  virtual bool apply(std::string& text, Regex::Scratch& scratch) const = 0;
};

/// Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, Replace, Prepend, Precompiled. Another type, or a field that
/// is not known, is an input error with its name.
std::unique_ptr<Normalizer> read_normalizer(Fields fields);

/// The `precompiled_charsmap` of SentencePiece: rules from short texts to texts in a double array, as base64. A
/// grapheme shorter than 6 bytes is looked up as one, otherwise character by character; the shortest rule that begins
/// it replaces all of it. Source: SentencePiece, src/normalizer.cc; Darts-clone for the array's units.
std::unique_ptr<Normalizer> precompiled_normalizer(const std::string& charsmap_base64, const Fields& fields);

/// `content` of Replace, at most kMaxPatternBytes long.
std::string read_content(Fields& fields);
/// For the time of its life rules may make a text of `bytes` at most 64 times as long (and 64 KB): steps that double it
/// each would otherwise fill any memory. The published rules that make most of a character make 11 times its bytes.
class TextLimit {
 public:
  TextLimit(Regex::Scratch& scratch, size_t bytes) : scratch_(scratch) { scratch.most_bytes = 64 * bytes + 65536; }
  ~TextLimit() { scratch_.most_bytes = ~size_t{0}; }
  TextLimit(const TextLimit&) = delete;
  TextLimit& operator=(const TextLimit&) = delete;

 private:
  Regex::Scratch& scratch_;
};
/// Throws an input error for a text that has become longer than its limit.
void check_growth(size_t bytes, const Regex::Scratch& scratch);

/// `pattern` of Split and Replace: {"String": ...} literally, or {"Regex": ...}.
Regex read_pattern(Fields& fields, std::string_view key);
/// A pattern that matches `text` itself.
std::string regex_escaped(std::string_view text);
/// Replaces every match. False as Normalizer::apply.
bool replace_all(const Regex& pattern, std::string_view by, Regex::Scratch& scratch, std::string& text);

}  // namespace ashlar::data
