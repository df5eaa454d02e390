#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// A text and its pieces for the model, in order, none empty.
struct Pieces {
  std::string_view text;    ///< `own`, or a text that outlives this
  std::vector<Span> spans;  ///< spans of `text`
  bool at_start = false;    ///< the first piece is at the start of the encoded text
  std::string own;
  std::vector<Span> next;  ///< spans under construction

  std::string_view piece(Span s) const { return text.substr(s.begin, s.end - s.begin); }
  void reset(std::string_view of, bool starts);
  /// Replaces the spans by those in `next`.
  void swap_next() {
    spans.swap(next);
    next.clear();
  }
};

/// Treatment of the matches of a splitting pattern: a piece each, removed, merged with the previous or next piece, or
/// adjacent matches merged into one piece.
enum class Split : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One step of `pre_tokenizer` of tokenizer.json.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces, Regex::Scratch& scratch) const = 0;
  /// For a step that ends by mapping bytes to characters (ByteLevel): applies it without the mapping, so that a
  /// byte-level model can read the text itself. False for other steps.
  virtual bool apply_without_mapping(Pieces&, Regex::Scratch&) const { return false; }
  virtual bool maps_bytes_last() const { return false; }
};

/// Sequence, Split, ByteLevel, Digits, Punctuation, Metaspace, WhitespaceSplit. Another type or an unknown field is an
/// input error with its name.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(Fields fields);

/// GPT-2's splitting pattern, built into ByteLevel.
extern const char* const kGpt2Pattern;
/// Qwen2's pattern, as in its class in transformers.
extern const char* const kQwen2Pattern;

}  // namespace ashlar::data
