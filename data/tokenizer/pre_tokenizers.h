#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// A text and the pieces of it that the model encodes, in order. No piece is empty.
struct Pieces {
  std::string_view text;    ///< view of `own`, or of a text that outlives this object
  std::vector<Span> spans;  ///< spans of `text`
  bool at_start = false;    ///< true if the first piece is at the start of the encoded text
  std::string own;
  std::vector<Span> next;  ///< spans under construction

  std::string_view piece(Span s) const { return text.substr(s.begin, s.end - s.begin); }
  void reset(std::string_view of, bool starts);
  /// Replaces `spans` by `next` and clears `next`.
  void swap_next() {
    spans.swap(next);
    next.clear();
  }
};

/// What happens to the matches of a splitting pattern. kIsolated: each match is a piece. kRemoved: matches are removed.
/// kMergedWithPrevious, kMergedWithNext: a match joins the piece before or after it. kContiguous: adjacent matches are
/// one piece.
enum class Split : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One step of `pre_tokenizer` of tokenizer.json.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces, Regex::Scratch& scratch) const = 0;
  /// For a step that ends by mapping bytes to characters (ByteLevel): applies the step without the mapping, so that a
  /// byte-level model can read the text itself, and returns true. Other steps do nothing and return false.
  virtual bool apply_without_mapping(Pieces&, Regex::Scratch&) const { return false; }
  virtual bool maps_bytes_last() const { return false; }
};

/// Reads a pre-tokenizer: Sequence, Split, ByteLevel, Digits, Punctuation, Metaspace or WhitespaceSplit. Throws an
/// input error that names any other type or an unknown field.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(Fields fields);

/// GPT-2's splitting pattern, built into ByteLevel.
extern const char* const kGpt2Pattern;
/// The splitting pattern of the class Qwen2Tokenizer in transformers.
extern const char* const kQwen2Pattern;

}  // namespace ashlar::data
