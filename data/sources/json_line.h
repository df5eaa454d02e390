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

/// Reads one string field of a JSON object on one line and validates the rest of the line as JSON. The text overwrites
/// its escaped form in `line`, so that only one copy of a long text is in memory. If U+FFFD make it longer than the
/// escaped form, it is in `room`. NaN, Infinity and -Infinity are values, as Python writes them. Throws TextError with
/// the offset in the line: not an object, broken JSON, invalid UTF-8 or a lone surrogate in the field, the field
/// missing (lists those present) or not a string. If a field is given twice, the last counts. Source: RFC 8259. With
/// `replace`, U+FFFD replaces invalid UTF-8 and lone surrogates.
JsonField read_json_field(std::span<char> line, std::string_view field, std::string& room, bool replace = false);

/// The end of the JSON value at the beginning of `text`, after white space. Throws TextError if it is invalid.
size_t json_value_end(std::string_view text);

}  // namespace ashlar::data
