#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <map>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {
namespace {

/// Returns every code point except the surrogates, in ascending order, in UTF-8.
std::string all_characters() {
  std::string all;
  all.reserve((size_t{kLastCodePoint} + 1) * 4);
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_utf8(c, all);
  }
  return all;
}

/// Returns the code points in `all` that have a property according to PCRE2. The Unicode version depends on PCRE2's
/// release.
CodeSet own_set(const std::string& property, const std::string& all) {
  const std::string pattern = str_cat("\\p{", property, "}+");
  int error = 0;
  size_t at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr),
      pcre2_code_free);
  if (code == nullptr) return {};
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // if this fails, matching is only slower
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 pcre2_match_data_free);
  CodeSet set;
  for (size_t start = 0; start < all.size();) {
    if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(all.data()), all.size(), start, PCRE2_NO_UTF_CHECK,
                    data.get(), nullptr) < 0) {
      break;
    }
    const size_t* const bounds = pcre2_get_ovector_pointer(data.get());
    size_t last = bounds[1] - 1;
    while ((static_cast<uint8_t>(all[last]) & 0xC0U) == 0x80U) --last;
    set.push_back({next_code_point(std::string_view(all).substr(bounds[0])).value,
                   next_code_point(std::string_view(all).substr(last)).value});
    start = bounds[1];
  }
  // A range across the surrogates becomes two ranges.
  CodeSet parted;
  for (const CodeRange& r : set) {
    if (r.first < 0xD800 && r.last > 0xDFFF) {
      parted.push_back({r.first, 0xD7FF});
      parted.push_back({0xE000, r.last});
    } else {
      parted.push_back(r);
    }
  }
  return parted;
}

std::string ranges_text(const CodeSet& set) {
  std::string text;
  for (const CodeRange& r : set) {
    text += absl::StrFormat("\\x{%x}", static_cast<uint32_t>(r.first));
    if (r.last > r.first) text += absl::StrFormat("-\\x{%x}", static_cast<uint32_t>(r.last));
  }
  return text;
}

class Translator {
 public:
  Translator(std::string_view pattern, Dialect dialect, const std::string& where)
      : pattern_(pattern), dialect_(dialect), where_(where) {}

  std::string translate() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw input_error("tokenizer", where_, ": the pattern has ", what, " at byte ", at_,
                      ", which is not supported: ", printable(pattern_, 200));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t n) {
    out_ += pattern_.substr(at_, n);
    at_ += n;
  }

  void step() {
    switch (peek()) {
      case '\\': return escape(false);
      case '[': return bracket();
      case '(': return group();
      case '}':
        if (dialect_ == Dialect::kOniguruma && peek(1) == '+') refuse("a repetition of a repetition, }+");
        return copy(1);
      default: return copy(1);
    }
  }

  void group() {
    if (peek(1) == '*') refuse("a backtracking verb, (*");
    if (peek(1) != '?') return copy(1);
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"}) {
      if (ahead(known)) return copy(known.size());
    }
    refuse(str_cat("a group ", escaped(pattern_.substr(at_, 4))));
  }

  void bracket() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') copy(1);
    while (peek() != ']') {
      if (at_ >= pattern_.size()) refuse("a character class without closing ]");
      if (peek() == '\\') {
        escape(true);
        continue;
      }
      if (peek() == '[') refuse("a character class inside a character class");
      if (ahead("&&")) refuse("an intersection of character classes, &&");
      copy(1);
    }
    copy(1);
  }

  /// Writes a set of characters: inside the current character class, or as a new character class.
  void put(const std::string& inside, bool in_class) { out_ += in_class ? inside : str_cat("[", inside, "]"); }

  void escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 'p':
      case 'P': return property(in_class);
      case 's': return set(white_space(), in_class);
      case 'S': return set(complement(white_space()), in_class);
      case 'd': return named("Nd", false, in_class);
      case 'D': return named("Nd", true, in_class);
      case 'w': return set(words(), in_class);
      case 'W': return set(complement(words()), in_class);
      case 'v':
        out_ += "\\x{b}";
        at_ += 2;
        return;
      case 'u': {
        if (dialect_ == Dialect::kPerl) refuse("\\u");
        const std::string_view digits = pattern_.substr(std::min(at_ + 2, pattern_.size())).substr(0, 4);
        if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
          refuse("\\u without four hexadecimal digits");
        out_ += str_cat("\\x{", digits, "}");
        at_ += 6;
        return;
      }
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'x': return copy(2);
      case 'A':
      case 'z':
        if (!in_class) return copy(2);
        break;
      case '\0': refuse("a backslash at its end");
      default: break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) refuse(str_cat("\\", std::string_view(&c, 1)));
    copy(2);
  }

  CodeSet words() const { return dialect_ == Dialect::kOniguruma ? pattern_word_characters() : word_characters(); }

  void set(const CodeSet& codes, bool in_class) {
    put(ranges_text(codes), in_class);
    at_ += 2;
  }

  void named(const std::string& name, bool negated, bool in_class) {
    put(property_text(name, negated), in_class);
    at_ += 2;
  }

  void property(bool in_class) {
    bool negated = peek(1) == 'P';
    std::string_view name;
    size_t length = 3;
    if (peek(2) == '{') {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) refuse("\\p{ without }");
      name = pattern_.substr(at_ + 3, close - at_ - 3);
      length = close + 1 - at_;
    } else {
      name = pattern_.substr(std::min(at_ + 2, pattern_.size())).substr(0, 1);
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (category(name).empty())
      refuse(str_cat("the property ", escaped(name), " (known are general categories, such as Lu)"));
    put(property_text(std::string(name), negated), in_class);
    at_ += length;
  }

  std::string property_text(const std::string& name, bool negated) {
    const CodeSet wanted = category(name);
    const auto [at, fresh] = own_.try_emplace(name);
    if (all_.empty()) all_ = all_characters();
    if (fresh) at->second = own_set(name, all_);
    if (negated) return wanted == at->second ? str_cat("\\P{", name, "}") : ranges_text(complement(wanted));
    // If PCRE2's property contains only wanted code points, writes the property and then the wanted code points that it
    // lacks: PCRE2 matches a property faster than hundreds of ranges.
    if (!difference(at->second, wanted).empty()) return ranges_text(wanted);
    return str_cat("\\p{", name, "}", ranges_text(difference(wanted, at->second)));
  }

  std::string_view pattern_;
  Dialect dialect_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  std::string all_;  ///< result of all_characters(), computed when a property needs it
  std::map<std::string, CodeSet> own_;
};

}  // namespace

std::string translated_pattern(std::string_view pattern, Dialect dialect, const std::string& where) {
  return Translator(pattern, dialect, where).translate();
}

}  // namespace ashlar::data
