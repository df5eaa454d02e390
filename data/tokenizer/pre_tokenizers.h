#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {

/// A text and the pieces that a model will see of it, in order, none empty.
struct Pieces {
  std::string_view text;    ///< `own`, or a text that outlives this
  std::vector<Span> spans;  ///< of `text`
  bool at_start = false;    ///< the first piece begins the text that was given to encode
  std::string own;
  std::vector<Span> next;  ///< spans being made

  std::string_view piece(Span s) const { return text.substr(s.begin, s.end - s.begin); }
  void reset(std::string_view of, bool starts);
  /// Replaces the spans by those in `next`.
  void take_next() {
    spans.swap(next);
    next.clear();
  }
};

/// What becomes of the matches of a splitting pattern: a piece each, none, part of the piece before or behind, or one
/// piece for neighbours.
enum class Split : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One step of `pre_tokenizer` of tokenizer.json.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces, Regex::Scratch& scratch) const = 0;
  /// For a step that ends by writing each byte as a character of its own (ByteLevel): the same without writing them,
  /// so that a model of bytes can read the text itself. False when it is no such step.
  virtual bool apply_without_mapping(Pieces&, Regex::Scratch&) const { return false; }
  virtual bool maps_bytes_last() const { return false; }
};

/// Sequence, Split, ByteLevel, Digits, Punctuation, Metaspace, WhitespaceSplit. Another type, or a field that is not
/// known, is an input error with its name.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(Fields fields);

/// The pattern that GPT-2 splits by, built into ByteLevel.
extern const char* const kGpt2Pattern;
/// Qwen2's, as its class in transformers has it.
extern const char* const kQwen2Pattern;

}  // namespace ashlar::data
