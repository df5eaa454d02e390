#include "data/sources/json_line.h"

#include <cstdint>
#include <cstring>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/base/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8_repair.h"

namespace ashlar::data {
namespace {

constexpr int kMaxDepth = 200;
constexpr size_t kShownKey = 40;  // maximum number of bytes of a key in a message

/// Writes the unescaped text over the escaped bytes from which it is read. If the written text would overtake the read
/// position, the text moves to `room`.
class InPlace {
 public:
  InPlace(char* begin, std::string& room) : begin_(begin), to_(begin), room_(room) {}

  /// Appends bytes to the text. `read` is the read position: all bytes before it have been read.
  void append(std::string_view bytes, const char* read) {
    if (!moved_ && to_ + bytes.size() > read) {
      room_.assign(begin_, to_);
      moved_ = true;
    }
    if (moved_) {
      room_ += bytes;
    } else {
      std::memmove(to_, bytes.data(), bytes.size());
      to_ += bytes.size();
    }
  }
  std::string_view text() const {
    return moved_ ? std::string_view(room_) : std::string_view(begin_, static_cast<size_t>(to_ - begin_));
  }

 private:
  char* begin_;
  char* to_;
  std::string& room_;
  bool moved_ = false;
};

/// A recursive-descent parser. It stores only the requested strings, since building a generic tree of each line would
/// be the slowest part of a build.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : text_(text) {}
  LineReader(std::span<char> line, bool replace)
      : text_(line.data(), line.size()), bytes_(line.data()), replace_(replace) {}

  int64_t replaced() const { return replaced_; }
  size_t value_end() {
    space();
    value(0);
    return at_;
  }

  std::string_view object(std::string_view field, std::string& room) {
    space();
    if (peek() != '{') fail("expected a JSON object");
    ++at_;
    bool found = false;
    std::string_view found_text;
    std::string key_room, others;
    space();
    if (peek() == '}') {
      ++at_;
    } else {
      for (;;) {
        space();
        InPlace key_text(bytes_ + at_, key_room);
        string(&key_text);
        const std::string_view key = key_text.text();
        space();
        expect(':');
        space();
        const bool wanted = key == field;
        if (wanted && peek() != '"') fail(str_cat("field \"", field, "\" is not a string"));
        if (wanted) {
          InPlace text(bytes_ + at_, room);
          string(&text);
          found_text = text.text();
          found = true;
        } else {
          if (others.size() < 100) others += str_cat(others.empty() ? "" : ", ", escaped(key, kShownKey));
          value(0);
        }
        space();
        if (peek() == '}') break;
        expect(',');
      }
      ++at_;
    }
    space();
    if (at_ != text_.size()) fail("expected the end of the line after the JSON object, got more text");
    if (!found) {
      at_ = 0;
      fail(str_cat("no field \"", field,
                   "\"; name the field of the text with --text-field; the object has these fields: ",
                   others.empty() ? "none" : others));
    }
    return found_text;
  }

 private:
  [[noreturn]] void fail(std::string reason) const { throw TextError{at_, std::move(reason)}; }

  int peek() const { return at_ < text_.size() ? static_cast<uint8_t>(text_[at_]) : -1; }

  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
      ++at_;
  }

  void expect(char c) {
    if (peek() != static_cast<uint8_t>(c)) fail(str_cat("broken JSON: expected '", std::string(1, c), "'"));
    ++at_;
  }

  void value(int depth) {
    if (depth > kMaxDepth) fail("JSON nested too deeply; expected at most 200 levels");
    switch (peek()) {
      case '"': string(nullptr); return;
      case '{':
      case '[': container(depth); return;
      case 't': word("true"); return;
      case 'f': word("false"); return;
      case 'n': word("null"); return;
      case 'N': word("NaN"); return;
      case 'I': word("Infinity"); return;
      default: number();
    }
  }

  void container(int depth) {
    const bool is_object = peek() == '{';
    const int close = is_object ? '}' : ']';
    ++at_;
    space();
    if (peek() == close) {
      ++at_;
      return;
    }
    for (;;) {
      space();
      if (is_object) {
        string(nullptr);
        space();
        expect(':');
        space();
      }
      value(depth + 1);
      space();
      if (peek() == close) break;
      expect(',');
    }
    ++at_;
  }

  void word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected)
      fail("broken JSON: expected true, false, null, NaN or Infinity");
    at_ += expected.size();
  }

  void digits() {
    if (peek() < '0' || peek() > '9') fail("broken JSON: expected a value or a digit");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  void number() {
    if (peek() == '-') ++at_;
    if (peek() == 'I') return word("Infinity");
    if (peek() == '0') {
      ++at_;
    } else {
      digits();
    }
    if (peek() == '.') {
      ++at_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
  }

  uint32_t hex4() {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int c = peek();
      if (c >= '0' && c <= '9') {
        v = v * 16 + static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        v = v * 16 + static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        v = v * 16 + static_cast<uint32_t>(c - 'A' + 10);
      } else {
        fail("broken JSON: \\u needs four hex digits");
      }
    }
    return v;
  }

  uint32_t lone_surrogate() {
    if (!replace_) fail("lone surrogate: a \\u escape of a surrogate without the other surrogate of its pair");
    ++replaced_;
    return 0xFFFDU;
  }

  /// Parses an escape sequence; at_ is after its backslash.
  void escape(InPlace* out) {
    const int c = peek();
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const size_t simple = c < 0 ? std::string_view::npos : kFrom.find(static_cast<char>(c));
    if (simple != std::string_view::npos) {
      ++at_;
      if (out != nullptr) out->append(kTo.substr(simple, 1), bytes_ + at_);
      return;
    }
    if (c != 'u') fail("broken JSON: unknown escape");
    ++at_;
    uint32_t v = hex4();
    if (v >= 0xD800U && v < 0xDC00U && text_.substr(at_, 2) == "\\u") {
      const size_t second = at_;
      at_ += 2;
      const uint32_t low = hex4();
      if (low >= 0xDC00U && low <= 0xDFFFU) {
        v = 0x10000U + ((v - 0xD800U) << 10) + (low - 0xDC00U);
      } else {
        at_ = second;  // no pair: the second escape is a separate character
        v = lone_surrogate();
      }
    } else if (v >= 0xD800U && v <= 0xDFFFU) {
      v = lone_surrogate();
    }
    if (out == nullptr) return;
    std::string character;
    append_utf8(v, character);
    out->append(character, bytes_ + at_);
  }

  /// Parses the string at at_ and, if `out` is not null, writes it to `out`.
  void string(InPlace* out) {
    expect('"');
    for (;;) {
      size_t start = at_;
      while (at_ < text_.size()) {
        const auto c = static_cast<uint8_t>(text_[at_]);
        if (c == '"' || c == '\\' || c < 0x20U) break;
        if (c < 0x80U) {
          ++at_;
          continue;
        }
        const CodePoint point = next_code_point(text_.substr(at_));
        if (point.bytes == 0) {
          if (!replace_) fail(str_cat("invalid UTF-8 byte 0x", absl::Hex(c, absl::kZeroPad2)));
          if (out != nullptr) out->append(text_.substr(start, at_ - start), bytes_ + at_);
          ++replaced_;
          start = at_ += ill_formed_bytes(text_.substr(at_));
          if (out != nullptr) out->append(kReplacement, bytes_ + at_);
          continue;
        }
        at_ += static_cast<size_t>(point.bytes);
      }
      if (out != nullptr) out->append(text_.substr(start, at_ - start), bytes_ + at_);
      if (at_ == text_.size()) fail("broken JSON: the line ends inside a string");
      if (text_[at_] == '"') break;
      if (text_[at_] != '\\') fail("broken JSON: control character inside a string");
      ++at_;
      escape(out);
    }
    ++at_;
  }

  std::string_view text_;
  char* bytes_ = nullptr;  ///< the same bytes as text_, writable; null if strings are not requested
  bool replace_ = false;
  size_t at_ = 0;
  int64_t replaced_ = 0;
};

}  // namespace

JsonField read_json_field(std::span<char> line, std::string_view field, std::string& room, bool replace) {
  LineReader reader(line, replace);
  const std::string_view text = reader.object(field, room);
  return {text, reader.replaced()};
}

size_t json_value_end(std::string_view text) { return LineReader(text).value_end(); }

}  // namespace ashlar::data
