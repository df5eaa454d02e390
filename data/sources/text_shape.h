#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Structure of a text file: one document, one JSON object per line, or one JSON array of objects.
enum class TextShape : uint8_t { kText, kJsonLines, kJsonArray };

struct ShapeFound {
  TextShape shape = TextShape::kText;
  std::string doubt;  ///< not empty: description of an ambiguous file
};

/// Detects the shape from the first bytes of a file; `whole`: they are the whole file. `name` (without the extension of
/// a compressed file) is used only if the bytes are ambiguous. JSON lines: every line is an object, or most lines are
/// and the name does not contradict. JSON array: the bytes are a valid prefix of an array whose first element is an
/// object. Other JSON is ambiguous, since it must not be silently trained on as prose. Everything else is text.
ShapeFound shape_of(std::string_view head, bool whole, const std::string& name);

/// Skips a UTF-8 byte order mark.
std::string_view without_bom(std::string_view text);

}  // namespace ashlar::data
