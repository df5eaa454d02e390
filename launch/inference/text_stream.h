#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace ashlar::inference {

/// The text of ids that come one after the other, as it becomes certain: what `add` returns, put together, and the
/// text of the ids before them is the text of all ids. An id may have another text behind others than alone: many
/// decoders take the space off a text's first word, and a character's bytes may be several ids.
class TextStream {
 public:
  /// `before`: the ids that stand before the first; their text is not returned.
  TextStream(const data::Tokenizer& tokenizer, std::span<const int32_t> before)
      : tokenizer_(tokenizer), ids_(before.begin(), before.end()), told_(ids_.size()) {}

  /// The text that the id adds; empty while a character lacks its rest.
  std::string add(int32_t id);
  /// What still waits, as it is.
  std::string rest();

 private:
  std::string flush(bool all);

  const data::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t anchor_ = 0;  ///< decoding begins here, where the ids told last began
  size_t told_ = 0;    ///< ids whose text has been returned
};

}  // namespace ashlar::inference
