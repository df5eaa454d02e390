#include "core/base/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "core/base/utf8.h"

namespace ashlar {
namespace {

bool shows_itself(char32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
  if (c == 0xad || c == 0x61c || c == 0x180e || c == 0xfeff) return false;  // soft hyphen, invisible marks
  if (c >= 0x200b && c <= 0x200f) return false;                             // zero width, direction marks
  if (c >= 0x2028 && c <= 0x202e) return false;                             // line separators, direction marks
  if (c >= 0x2060 && c <= 0x206f) return false;                             // zero width, direction marks
  return (c < 0xe0000 || c > 0xe0fff) && (c < 0xfff9 || c > 0xfffb);        // tag characters, annotation marks
}

/// Selects the visible characters that are escaped; invisible characters always are. kMessage: none. kText:
/// backslashes. kQuoted: backslashes and single quotes.
enum class Style { kMessage, kText, kQuoted };

void append(char32_t c, std::string_view bytes, Style style, std::string& out) {
  static constexpr std::string_view kNamed = "\n\r\t", kLetters = "nrt";
  if ((c == U'\\' && style != Style::kMessage) || (c == U'\'' && style == Style::kQuoted)) {
    out += '\\';
    out += static_cast<char>(c);
  } else if (shows_itself(c)) {
    out += bytes;
  } else if (const size_t at = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
             at != std::string_view::npos) {
    out += '\\';
    out += kLetters[at];
  } else if (c < 0x100) {
    absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c));
  } else {
    absl::StrAppendFormat(&out, c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<uint32_t>(c));
  }
}

std::string escape(std::string_view text, Style style) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    const size_t bytes = point.bytes == 0 ? 1 : static_cast<size_t>(point.bytes);
    if (point.bytes == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(text[0]));
    } else {
      append(point.value, text.substr(0, bytes), style, out);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xc0U) == 0x80U; }

std::string bounded(std::string_view text, size_t most, Style style) {
  if (text.size() <= most) return escape(text, style);
  // A character has at most three continuation bytes; more are invalid UTF-8 and may be split anywhere.
  size_t head = most / 2;
  for (int i = 0; i < 3 && head > 0 && continues_character(text[head]); ++i) --head;
  size_t tail = text.size() - most / 2;
  for (int i = 0; i < 3 && tail < text.size() && continues_character(text[tail]); ++i) ++tail;
  return escape(text.substr(0, head), style) + "..." + escape(text.substr(tail), style);
}

}  // namespace

std::string escaped(std::string_view text, size_t most) { return bounded(text, most, Style::kText); }

std::string printable(std::string_view text, size_t most) { return "'" + bounded(text, most, Style::kQuoted) + "'"; }

std::string on_one_line(std::string_view message, size_t most) { return bounded(message, most, Style::kMessage); }

}  // namespace ashlar
