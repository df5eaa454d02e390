#include "data/sources/json_array.h"

namespace ashlar::data {
namespace {

bool white(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Returns the position after the closing quote of the string that opens at `at`; npos if the string is not closed.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    at = text.find_first_of("\"\\", at);
    if (at == std::string_view::npos) return at;
    if (text[at] == '"') return at + 1;
    ++at;
  }
  return std::string_view::npos;
}

}  // namespace

void JsonArrayScan::add(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
        continue;
      }
      i = bytes.find_first_of("\"\\", i);
      if (i == std::string_view::npos) break;
      escaped_ = bytes[i] == '\\';
      in_string_ = escaped_;
      continue;
    }
    const char c = bytes[i];
    if (expects_element_ && !white(c) && c != ']' && c != ',') {
      const int64_t begin = at_ + static_cast<int64_t>(i);
      if (starts_.empty() || begin - starts_.back() >= block_bytes_) starts_.push_back(begin);
      expects_element_ = false;
    }
    if (c == '"') {
      in_string_ = true;
    } else if (c == '[' || c == '{') {
      expects_element_ = ++depth_ == 1;
    } else if (c == ']' || c == '}') {
      --depth_;
    } else if (c == ',' && depth_ == 1) {
      expects_element_ = true;
    }
  }
  at_ += static_cast<int64_t>(bytes.size());
}

size_t json_element_end(std::string_view text, size_t begin) {
  int64_t depth = 0;
  for (size_t at = begin; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      if (at == std::string_view::npos) return at;
      if (depth == 0) return at;
      continue;
    }
    if (depth == 0 && (c == ',' || c == ']' || c == '}')) return at;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at + 1;
    ++at;
  }
  return std::string_view::npos;
}

}  // namespace ashlar::data
