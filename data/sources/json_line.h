#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::data {

struct JsonField {
  std::string_view text;
  int64_t replaced = 0;  ///< places where U+FFFD stands for what was no character
};

/// Reads one string field of a JSON object on one line and checks the rest of the line as JSON. The text takes the
/// place of its escaped form in `line`, whose bytes are lost, so that a long one is in memory once; or lies in `room`,
/// when U+FFFD make it longer. NaN, Infinity and -Infinity are values, as Python writes them. Throws TextError with the
/// offset in the line: not an object, broken JSON, invalid UTF-8 or a lone surrogate in the field, the field missing
/// (names those present) or not a string. Of a field given twice the last counts. Source: RFC 8259. With `replace`,
/// U+FFFD takes the place of bytes that are no UTF-8 and of lone surrogates.
JsonField read_json_field(std::span<char> line, std::string_view field, std::string& room, bool replace = false);

/// The end of the JSON value that `text` begins with, white space before it aside. Throws TextError where it breaks.
size_t json_value_end(std::string_view text);

}  // namespace ashlar::data
