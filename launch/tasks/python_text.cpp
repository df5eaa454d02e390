#include "launch/tasks/python_text.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::tasks {

namespace {

/// str.isspace() of one character: White_Space and the separators U+001C to U+001F.
bool is_python_space(char32_t c) { return data::is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

size_t bytes_of(std::string_view text) {
  const CodePoint c = next_code_point(text);
  return static_cast<size_t>(std::max(c.bytes, 1));
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// Appends the capital of `c`: of the letters below U+0587, the one whose lower case is `c`.
void append_capital(char32_t c, std::string& out) {
  std::string small, lower;
  append_utf8(c, small);
  for (char32_t capital = 'A'; capital < 0x587; ++capital) {
    lower.clear();
    data::append_lower(capital, lower);
    if (capital != c && lower == small) return append_utf8(capital, out);
  }
  out += small;
}

}  // namespace

size_t first_character(std::string_view text) { return text.empty() ? 0 : bytes_of(text); }

std::string_view strip_left(std::string_view text) {
  while (!text.empty() && is_python_space(next_code_point(text).value)) text.remove_prefix(bytes_of(text));
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && continues(text[last])) --last;
    if (!is_python_space(next_code_point(text.substr(last)).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.substr(at));
    if (c.bytes == 0) {
      out += text[at++];
      continue;
    }
    at == 0 ? append_capital(c.value, out) : data::append_lower(c.value, out);
    at += static_cast<size_t>(c.bytes);
  }
  return out;
}

int64_t length(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return !continues(byte); });
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace ashlar::tasks
