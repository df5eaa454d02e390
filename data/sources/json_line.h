#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::data {

struct JsonField {
  std::string_view text;
  int64_t replaced = 0;  ///< number of U+FFFD inserted for invalid characters
};

/// Reads one string field of a JSON object on one line and validates the rest of the line as JSON. The unescaped text
/// overwrites the escaped text in `line`, so that only one copy of a long text is in memory. If inserted U+FFFD make
/// the text longer than the escaped text, the text is written to `room` instead. NaN, Infinity and -Infinity are
/// accepted, since Python writes them. If the field occurs twice, the last value is used. Throws TextError, with the
/// offset in the line, if the line is not an object or is broken JSON, and if the field is missing (the error lists the
/// fields that are present) or is not a string. Invalid UTF-8 and lone surrogates are replaced by U+FFFD if `replace`
/// is true; otherwise they also throw TextError. Source: RFC 8259.
JsonField read_json_field(std::span<char> line, std::string_view field, std::string& room, bool replace = false);

/// Returns the end of the first JSON value in `text`. White space may precede the value. Throws TextError if the value
/// is invalid.
size_t json_value_end(std::string_view text);

}  // namespace ashlar::data
