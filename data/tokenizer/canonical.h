#pragma once

#include <string>
#include <string_view>

namespace ashlar::data {

/// Returns a canonical form of the parts of a tokenizer.json that determine encoding and decoding. The result does not
/// depend on key order, white space, absent or null fields, or whether merges are written as "a b" or as ["a", "b"]. It
/// leaves out the parts that affect neither encoding nor decoding: version, truncation, padding, offsets and the
/// template.
std::string canonical_tokenizer(std::string_view tokenizer_json);

}  // namespace ashlar::data
