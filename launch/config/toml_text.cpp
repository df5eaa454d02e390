#include "launch/config/toml_text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/io/json.h"

namespace ashlar::config {
namespace {

/// Scans TOML text for nesting only: it recognizes strings, comments, brackets and the dots of keys.
class DepthScan {
 public:
  explicit DepthScan(std::string_view text) : text_(text) {}

  std::optional<size_t> run() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      else if (c == '"' || c == '\'')
        skip_string(c);
      else if (c == '\n')
        ++line_, dots_ = 0;
      else if (c == '.')
        ++dots_;
      else if (c == '[' || c == '{')
        open();
      else if (c == ']' || c == '}')
        close();
      else if (c == ',')
        dots_ = 0;
      if (levels_ + dots_ > io::kMaxJsonDepth) return line_;
    }
    return std::nullopt;
  }

 private:
  void open() {
    opened_.push_back(dots_ + 1);
    levels_ += opened_.back();
    dots_ = 0;
  }
  void close() {
    dots_ = 0;
    if (opened_.empty()) return;
    levels_ -= opened_.back();
    opened_.pop_back();
  }

  /// Advances to the closing quote of a string, or to the end of the line or text if the quote is missing.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool lines = text_.substr(at_, 3) == three;
    for (at_ += lines ? 3 : 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\' && quote == '"') {
        ++at_;
        if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      } else if (text_[at_] == '\n') {
        ++line_;
        if (!lines) return;
      } else if (lines ? text_.substr(at_, 3) == three : text_[at_] == quote) {
        at_ += lines ? 2 : 0;
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0, line_ = 0;
  int64_t levels_ = 0;           // number of open levels
  int64_t dots_ = 0;             // dots in the current key
  std::vector<int64_t> opened_;  // levels that each open bracket adds: one, and one more for each dot of its key
};

}  // namespace

std::string trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1));
}

std::optional<size_t> too_deep(std::string_view text) { return DepthScan(text).run(); }

}  // namespace ashlar::config
