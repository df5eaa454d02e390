#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::inference {

/// The text of ids that come one after the other, as it becomes certain: what `add` and `rest` return, put together, is
/// the text of all ids behind that of the ids before them. An id may have another text behind others than alone: many
/// decoders take the space off a text's first word, a character's bytes may be several ids, and tokens of bytes are
/// decoded as a run: one more byte may make none of them a character. What `add` returns ends with a whole character.
class TextStream {
 public:
  /// `before`: the ids that stand before the first; their text is not returned.
  TextStream(const data::Tokenizer& tokenizer, std::span<const int32_t> before);

  /// The text that the id makes certain; empty while a run of bytes goes on or a character lacks its rest.
  std::string add(int32_t id);
  /// What still waits, as it is.
  std::string rest();

 private:
  std::string flush(bool all);

  const data::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t anchor_ = 0;  ///< decoding begins here, where the ids told last began
  size_t told_ = 0;    ///< ids whose text has been returned
  std::string known_;  ///< the text from the anchor on as far as it has been returned
};

}  // namespace ashlar::inference
