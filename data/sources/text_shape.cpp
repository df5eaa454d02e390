#include "data/sources/text_shape.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "data/sources/json_line.h"
#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {
namespace {

constexpr std::string_view kWhitespace = " \t\r\n";
/// If the end of the examined bytes truncates a value, the parse error is at most this many bytes before the end.
constexpr size_t kTruncationMargin = 16;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhitespace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kWhitespace) + 1 - begin);
}

/// Result of parsing the JSON value at the beginning of a text.
struct Value {
  bool good = false;       ///< the value is valid, or valid up to the end of the text
  size_t end = 0;          ///< end of a complete value
  bool truncated = false;  ///< the text ends inside the value
};

Value value_at(std::string_view text, bool whole) {
  try {
    return {.good = true, .end = json_value_end(text)};
  } catch (const TextError& e) {
    const bool truncated = !whole && e.offset + kTruncationMargin >= text.size();
    return {.good = truncated, .truncated = truncated};
  }
}

/// Numbers of lines that are JSON objects, JSON arrays, and other lines. Blank lines do not count.
struct Lines {
  int64_t objects = 0, arrays = 0, others = 0;
  bool first_is_object = false;
};

Lines lines_of(std::string_view head, bool whole) {
  Lines lines;
  for (size_t at = 0; at < head.size();) {
    const size_t stop = std::min(head.find('\n', at), head.size());
    const bool last = stop == head.size() && !whole;
    const std::string_view line = trimmed(head.substr(at, stop - at));
    const bool only = at == 0;
    at = stop + 1;
    if (line.empty() || (last && !only)) continue;  // an incomplete last line is ignored, unless it is the only one
    const bool json = line[0] == '{' || line[0] == '[';
    const Value value = json ? value_at(line, !last) : Value{};
    const bool good = value.good && (value.truncated || value.end == line.size());
    const bool first = lines.objects + lines.arrays + lines.others == 0;
    if (!good) {
      ++lines.others;
    } else if (line[0] == '{') {
      ++lines.objects;
      lines.first_is_object = lines.first_is_object || first;
    } else {
      ++lines.arrays;
    }
  }
  return lines;
}

enum class Hint : uint8_t { kNone, kText, kJson, kJsonLines };

Hint hint_of(const std::string& name) {
  const std::string ending = absl::AsciiStrToLower(std::filesystem::path(name).extension().string());
  constexpr std::array<std::string_view, 4> kLines = {".jsonl", ".ndjson", ".jl", ".jsonlines"};
  if (std::find(kLines.begin(), kLines.end(), ending) != kLines.end()) return Hint::kJsonLines;
  if (ending == ".json") return Hint::kJson;
  return ending.empty() ? Hint::kNone : Hint::kText;
}

ShapeFound of_objects(std::string_view text, bool whole, Hint hint) {
  const Lines lines = lines_of(text, whole);
  const int64_t bad = lines.arrays + lines.others;
  if (lines.objects > 0 && (bad == 0 || (hint == Hint::kJson && lines.first_is_object)))
    return {TextShape::kJsonLines, ""};
  if (lines.first_is_object) {
    if (lines.objects > 4 * bad) return {TextShape::kJsonLines, ""};  // reading reports the invalid lines
    if (lines.objects >= bad && hint != Hint::kText)
      return {TextShape::kText, "has lines of JSON objects and other lines"};
    return {};
  }
  const bool json = value_at(text, whole).good;
  if (json && text.find_first_not_of(kWhitespace, 1) != std::string_view::npos)
    return {TextShape::kText, "holds a JSON object over several lines"};
  return hint == Hint::kJson ? ShapeFound{TextShape::kText, "is named .json but has no JSON"} : ShapeFound{};
}

ShapeFound of_array(std::string_view text, bool whole, Hint hint) {
  const Value value = value_at(text, whole);
  const size_t first = text.find_first_not_of(kWhitespace, 1);
  const std::string_view behind = value.truncated ? "" : trimmed(text.substr(value.end));
  if (value.good && behind.empty() && first != std::string_view::npos && text[first] == '{')
    return {TextShape::kJsonArray, ""};
  const Lines lines = lines_of(text, whole);
  if (lines.arrays > 1 && lines.objects + lines.others == 0)
    return {TextShape::kText, "has a JSON array per line, not an object"};
  if (value.good && behind.empty()) return {TextShape::kText, "is a JSON array, but not one of objects"};
  return hint == Hint::kJson ? ShapeFound{TextShape::kText, "is named .json but has no JSON array"} : ShapeFound{};
}

}  // namespace

std::string_view without_bom(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

ShapeFound shape_of(std::string_view head, bool whole, const std::string& name) {
  const Hint hint = hint_of(name);
  std::string_view text = without_bom(head);
  text.remove_prefix(std::min(text.find_first_not_of(kWhitespace), text.size()));
  const char first = text.empty() ? '\0' : text[0];
  if (first == '[') {
    const ShapeFound found = of_array(text, whole, hint);
    if (found.shape == TextShape::kJsonArray || hint != Hint::kJsonLines) return found;
  }
  if (hint == Hint::kJsonLines || (hint == Hint::kJson && first == '\0')) return {TextShape::kJsonLines, ""};
  if (first == '{') return of_objects(text, whole, hint);
  if (first != '[' && hint == Hint::kJson) return {TextShape::kText, "is named .json and begins with neither { nor ["};
  return {};
}

}  // namespace ashlar::data
