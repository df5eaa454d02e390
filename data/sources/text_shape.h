#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Structure of a file with text: one document, one JSON object per line, one JSON array of objects, or the rows of a
/// Parquet file.
enum class TextShape : uint8_t { kText, kJsonLines, kJsonArray, kRows };

struct ShapeFound {
  TextShape shape = TextShape::kText;
  std::string doubt;  ///< why the shape is ambiguous; empty if it is clear
};

/// Detects the shape from the first bytes of a file and from `name` (without the extension of a compressed file).
/// `whole` is true if the bytes are the whole file. The first shape that applies is returned:
/// - kJsonArray, if the bytes are a valid prefix of an array whose first element is an object;
/// - kJsonLines, if the name ends in .jsonl, .ndjson, .jl or .jsonlines; or if every line is an object; or if the first
/// line is an object and either the name ends in .json or more than 4/5 of the lines are objects; or if the name ends
/// in .json and there is nothing but white space and a byte order mark: no document;
/// - kText. If such a file contains other JSON, or is named .json without being JSON, `doubt` is set, so that the
/// caller can refuse the file instead of training on it as prose.
ShapeFound shape_of(std::string_view head, bool whole, const std::string& name);

/// Returns `text` without a UTF-8 byte order mark at its beginning.
std::string_view without_bom(std::string_view text);

}  // namespace ashlar::data
