#include "data/sources/text_splitter.h"

#include <algorithm>

#include "data/tokenizer/pipeline_tokenizer.h"

namespace ashlar::data {
namespace {

constexpr size_t kFar = size_t{64} << 10;  // after this many bytes without a split point, more places are tested
// The additional places: every kStride-th byte of the file.
constexpr int64_t kStride = 251;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0U) == 0x80U; }

/// True if the tokenizer is asked whether `text` may be split at `at`. The place must be before a space, a line break,
/// or a full stop or comma of Chinese and Japanese (which are written without spaces), and not after white space.
bool worth_asking(std::string_view text, size_t at) {
  if (is_space(text[at - 1])) return false;
  return text[at] == ' ' || text[at] == '\n' || text.substr(at).starts_with("\xe3\x80\x82") ||
         text.substr(at).starts_with("\xef\xbc\x8c");
}

}  // namespace

DocumentSeparator::DocumentSeparator(const std::string& option)
    : blank_line_(option == "blank-line"), text_(blank_line_ || option == "none" ? "" : option) {}

std::optional<DocumentSeparator::Found> DocumentSeparator::find(std::string_view text, size_t from,
                                                                bool line_begins) const {
  if (!text_.empty()) {
    const size_t begin = text.find(text_, from);
    if (begin == std::string_view::npos) return std::nullopt;
    size_t end = begin + text_.size();
    if (text.substr(end).starts_with("\r\n")) ++end;
    if (text.substr(end).starts_with('\n')) ++end;
    return Found{begin, end};
  }
  for (size_t line = from; blank_line_ && line < text.size();) {
    if (line_begins) {
      size_t end = line;  // end of the run of blank lines
      for (size_t at = line; at < text.size();) {
        at = text.find_first_not_of(" \t\r", at);
        if (at == std::string_view::npos || text[at] != '\n') break;
        end = ++at;
      }
      if (end > line) return Found{line, end};
    }
    const size_t next = text.find('\n', line);
    if (next == std::string_view::npos) break;
    line = next + 1;
    line_begins = true;
  }
  return std::nullopt;
}

bool DocumentSeparator::may_split(std::string_view text, size_t at) const {
  if (at == 0 || is_space(text[at - 1])) return false;
  if (text_.empty()) return true;
  // A separator, or the line break after it, must not extend across `at`. The searched range contains every separator
  // that could do so.
  const size_t reach = text_.size() + 2;
  const size_t begin = at - std::min(at, reach - 1);
  const size_t found = text.substr(0, std::min(text.size(), at - 1 + text_.size())).find(text_, begin);
  return found == std::string_view::npos || found >= at;
}

std::optional<size_t> TextSplitter::joint(std::string_view text, size_t at) const {
  const size_t low = at - std::min(at, kContext), high = std::min(text.size(), at + kContext);
  // Finds the range [begin, end) of valid UTF-8 around `at`.
  size_t begin = low, end = high;
  while (begin < at && continuation(text[begin])) ++begin;
  while (end > at && end < text.size() && continuation(text[end])) --end;
  const std::string_view left = text.substr(0, at);
  for (size_t bad = valid_utf8_end(left, begin); bad < at; bad = valid_utf8_end(left, begin)) begin = bad + 1;
  end = valid_utf8_end(text.substr(0, end), at);
  return tokenizer_->joint(text.substr(begin, end - begin), at - begin);
}

std::optional<TextSplitter::SplitPoint> TextSplitter::find(std::string_view text, size_t& from, bool last,
                                                           const Search& search) const {
  if (context() == 0) {
    if (from + 4 > text.size() && !last) return std::nullopt;
    const size_t at = from + first_split_point(rule_, text.substr(std::min(from, text.size())));
    return SplitPoint{at, at};
  }
  for (; from < text.size() && (last || from + kContext <= text.size()); ++from) {
    if (from == 0) continue;
    if (separator_ && (continuation(text[from]) || !separator_.may_split(text, from))) continue;
    if (rule_ != SplitPoints::kWords) return SplitPoint{from, from};
    const bool far = from >= search.begin + kFar && (search.text_offset + static_cast<int64_t>(from)) % kStride == 0 &&
                     !continuation(text[from]);
    if (!far && !worth_asking(text, from)) continue;
    if (const auto left_out = joint(text, from)) return SplitPoint{from, from + *left_out};
  }
  return std::nullopt;
}

}  // namespace ashlar::data
