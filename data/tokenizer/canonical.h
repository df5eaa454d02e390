#pragma once

#include <string>
#include <string_view>

namespace ashlar::data {

/// The parts of a tokenizer.json that determine ids of texts and texts of ids, as a canonical text: independent of key
/// order, white space, absent or null fields, and merges as "a b" or ["a", "b"]. Without the parts that affect neither:
/// version, truncation, padding, offsets, and the template.
std::string canonical_tokenizer(std::string_view tokenizer_json);

}  // namespace ashlar::data
