#pragma once

#include <string>
#include <string_view>

namespace ashlar::data {

/// Reads one string field of a JSON object on one line into `out` (replaced), and checks the rest of the line as JSON.
/// Throws TextError with the offset in the line: not an object, broken JSON, invalid UTF-8 or a lone surrogate in the
/// field, the field missing (names those present) or not a string. Of a field given twice the last counts.
/// Source: RFC 8259.
void read_json_field(std::string_view line, std::string_view field, std::string& out);

}  // namespace ashlar::data
