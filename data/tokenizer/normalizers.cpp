#include "data/tokenizer/normalizers.h"

#include <algorithm>
#include <vector>

#include "core/base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {
namespace {

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  bool apply(std::string& text, Regex::Scratch& scratch) const override {
    bool kept = true;
    for (const auto& step : steps_) {
      kept = step->apply(text, scratch) && kept;
      check_growth(text.size(), scratch);
    }
    return kept;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  bool apply(std::string& text, Regex::Scratch&) const override {
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
    if (!ascii) text = normalised(form_, text);
    return true;
  }

 private:
  NormalForm form_;
};

/// Calls `visit` with each code point and its bytes.
template <typename Visit>
void for_code_points(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.substr(at));
    ASHLAR_CHECK(c.bytes > 0, "text is not UTF-8");
    visit(c.value, text.substr(at, static_cast<size_t>(c.bytes)));
    at += static_cast<size_t>(c.bytes);
  }
}

class Lowercase final : public Normalizer {
 public:
  bool apply(std::string& text, Regex::Scratch&) const override {
    std::string lower;
    lower.reserve(text.size());
    for_code_points(text, [&](char32_t c, std::string_view) { append_lower(c, lower); });
    text = std::move(lower);
    return true;
  }
};

/// Removes control characters and replaces tabs, line breaks and similar characters by a space. Source: the rules of
/// SentencePiece's nmt_nfkc.
class Nmt final : public Normalizer {
 public:
  bool apply(std::string& text, Regex::Scratch&) const override {
    std::string out;
    bool kept = true;
    out.reserve(text.size());
    for_code_points(text, [&](char32_t c, std::string_view bytes) {
      const bool control =
          (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (control) kept = kept && !out.empty();
      if (!control) out += space ? " " : bytes;
    });
    text = std::move(out);
    return kept;
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  bool apply(std::string& text, Regex::Scratch&) const override {
    size_t begin = text.size(), end = 0, at = 0;  // range without leading and trailing white space
    for_code_points(text, [&](char32_t c, std::string_view bytes) {
      if (!is_white_space(c)) {
        begin = std::min(begin, at);
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (right_) text.resize(end);
    if (left_) text.erase(0, std::min(begin, text.size()));
    return !left_ || begin == 0;
  }

 private:
  bool left_, right_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  bool apply(std::string& text, Regex::Scratch& scratch) const override {
    return replace_all(pattern_, content_, scratch, text);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  bool apply(std::string& text, Regex::Scratch&) const override {
    if (!text.empty()) text.insert(0, text_);
    return true;
  }

 private:
  std::string text_;
};

}  // namespace

std::string regex_escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' ||
                      static_cast<uint8_t>(c) >= 0x80 || static_cast<uint8_t>(c) < 0x20;
    if (!word) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

std::string read_content(Fields& fields) {
  std::string content = fields.text("content");
  if (content.size() > kMaxPatternBytes)
    throw fields.error(
        "content", str_cat("has ", content.size(), " bytes, at most ", kMaxPatternBytes, " are allowed; shorten it"));
  return content;
}

void check_growth(size_t bytes, const Regex::Scratch& scratch) {
  if (bytes <= scratch.most_bytes) return;
  throw input_error("tokenizer", "expected the steps of the tokenizer to make at most ", scratch.most_bytes,
                    " bytes of a text, got more: its replacements multiply the text; correct them");
}

Regex read_pattern(Fields& fields, std::string_view key) {
  if (fields.is_text(key)) return {regex_escaped(fields.text(key)), Dialect::kOniguruma, fields.path_of(key)};
  Fields pattern = fields.object(key);
  const bool literal = pattern.has("String");
  const std::string text = literal ? regex_escaped(pattern.text("String")) : pattern.text("Regex");
  pattern.finish();
  return {text, Dialect::kOniguruma, fields.path_of(key)};
}

bool replace_all(const Regex& pattern, std::string_view by, Regex::Scratch& scratch, std::string& text) {
  std::string out;
  size_t done = 0;
  bool kept = true;
  pattern.find_all(text, scratch, [&](Span found) {
    if (out.empty()) out.reserve(text.size() + text.size() / 4);
    out.append(text, done, found.begin - done);
    kept = kept && (!out.empty() || !by.empty() || found.begin == found.end);
    out += by;
    done = found.end;
    check_growth(out.size(), scratch);
  });
  if (done == 0 && out.empty()) return true;
  out.append(text, done);
  text = std::move(out);
  return kept;
}

std::unique_ptr<Normalizer> read_normalizer(Fields fields) {
  fields.count_step();
  const std::string type = fields.text("type");
  std::unique_ptr<Normalizer> made;
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (size_t i = 0; i < fields.length("normalizers"); ++i)
      steps.push_back(read_normalizer(fields.element("normalizers", i)));
    made = std::make_unique<Sequence>(std::move(steps));
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    const bool compatible = type[2] == 'K', composed = type.back() == 'C';
    made = std::make_unique<Form>(compatible ? (composed ? NormalForm::kNfkc : NormalForm::kNfkd)
                                             : (composed ? NormalForm::kNfc : NormalForm::kNfd));
  } else if (type == "Lowercase") {
    made = std::make_unique<Lowercase>();
  } else if (type == "Nmt") {
    made = std::make_unique<Nmt>();
  } else if (type == "Strip") {
    const bool left = fields.boolean("strip_left", false), right = fields.boolean("strip_right", false);
    made = std::make_unique<Strip>(left, right);
  } else if (type == "Replace") {
    Regex pattern = read_pattern(fields, "pattern");
    made = std::make_unique<Replace>(std::move(pattern), read_content(fields));
  } else if (type == "Prepend") {
    const std::string text = fields.text("prepend");
    if (text.size() > kMaxPatternBytes)
      throw fields.error("prepend", str_cat("expected at most ", kMaxPatternBytes, " bytes; shorten it"));
    made = std::make_unique<Prepend>(text);
  } else if (type == "Precompiled") {
    made = precompiled_normalizer(fields.text("precompiled_charsmap", ""), fields);
  } else {
    throw fields.unsupported("type",
                             "Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, Replace, Prepend or Precompiled");
  }
  fields.finish();
  return made;
}

}  // namespace ashlar::data
