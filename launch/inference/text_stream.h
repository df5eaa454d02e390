#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::inference {

/// Decodes ids one at a time and returns text as soon as further ids cannot change it. The results of `add` and `rest`,
/// concatenated, are the text that the added ids append to the text of `before`. The text of an id depends on its
/// context: many decoders remove the space before the first word, a character's bytes may be several ids, and a run of
/// byte tokens is decoded together, where one more byte may make the run invalid. What `add` returns ends with a
/// complete character.
class TextStream {
 public:
  /// `before`: the ids before the first added id; their text is not returned.
  TextStream(const data::Tokenizer& tokenizer, std::span<const int32_t> before);

  /// Adds an id and returns the text that is now final; empty while a run of byte tokens continues or a character is
  /// incomplete.
  std::string add(int32_t id);
  /// Returns the remaining text, even if its last character is incomplete.
  std::string rest();

 private:
  std::string flush(bool all);

  const data::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t anchor_ = 0;    ///< index of the first id that is decoded again
  size_t returned_ = 0;  ///< number of ids whose text was returned
  std::string known_;    ///< text already returned for the ids from anchor_ on
};

}  // namespace ashlar::inference
