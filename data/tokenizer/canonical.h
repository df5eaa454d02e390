#pragma once

#include <string>
#include <string_view>

namespace ashlar::data {

/// What of a tokenizer.json decides the ids of a text and the text of ids, as one text that does not depend on how the
/// file writes it: order of keys, white space, what is left out or null, merges as "a b" or ["a", "b"]. Without what
/// decides neither: version, truncation, padding, offsets, and the template around a text.
std::string canonical_tokenizer(std::string_view tokenizer_json);

}  // namespace ashlar::data
