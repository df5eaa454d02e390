#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// What a file of text is made of: one document, a JSON object a line, or one JSON array of objects.
enum class TextShape : uint8_t { kText, kJsonLines, kJsonArray };

struct ShapeFound {
  TextShape shape = TextShape::kText;
  std::string doubt;  ///< not empty: what the bytes are, where neither they nor the name decide
};

/// Told by the first bytes of a file; `whole`: they are all of it. `name` (without the endings of compressed files) is
/// asked only where the bytes leave it open. JSON lines: every line there is an object, or most are and the name does
/// not speak against it. An array: a valid beginning of one whose first element is an object. JSON that is neither is
/// doubt: trained on as prose it would be a silent mistake. Everything else is text, whatever it begins with.
ShapeFound shape_of(std::string_view head, bool whole, const std::string& name);

/// Past a byte order mark of UTF-8.
std::string_view without_bom(std::string_view text);

}  // namespace ashlar::data
