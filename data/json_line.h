#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Reads one string field of a JSON object on one line into `out` (replaced), and checks the rest of the line as JSON.
/// NaN, Infinity and -Infinity are values, as Python writes them. Throws TextError with the offset in the line: not an
/// object, broken JSON, invalid UTF-8 or a lone surrogate in the field, the field missing (names those present) or not
/// a string. Of a field given twice the last counts. Source: RFC 8259. With `replace`, U+FFFD takes the place of bytes
/// that are no UTF-8 and of lone surrogates, whose number is returned.
int64_t read_json_field(std::string_view line, std::string_view field, std::string& out, bool replace = false);

/// The end of the JSON value that `text` begins with, white space before it aside. Throws TextError where it breaks.
size_t json_value_end(std::string_view text);

}  // namespace ashlar::data
