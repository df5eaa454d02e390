#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::inference {

/// The text of a sequence of ids, returned as it becomes final. The results of `add` and `rest`, concatenated, are the
/// text of all ids after the text of the ids before them. The text of an id depends on its context: many decoders
/// remove the space before the first word, a character's bytes may be several ids, and a run of byte tokens is decoded
/// together, where one more byte may make the run invalid. What `add` returns ends with a complete character.
class TextStream {
 public:
  /// `before`: the ids before the first one; their text is not returned.
  TextStream(const data::Tokenizer& tokenizer, std::span<const int32_t> before);

  /// The text that the id makes final; empty while a run of byte tokens continues or a character is incomplete.
  std::string add(int32_t id);
  /// The remaining text, as it is.
  std::string rest();

 private:
  std::string flush(bool all);

  const data::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t anchor_ = 0;    ///< index where decoding begins
  size_t returned_ = 0;  ///< number of ids whose text was returned
  std::string known_;    ///< the returned text from the anchor on
};

}  // namespace ashlar::inference
