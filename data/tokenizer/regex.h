#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Part of a text: bytes [begin, end).
struct Span {
  uint32_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// Syntax of a pattern. kOniguruma (tokenizer.json): `^` and `$` match at lines, `{1,3}+` is a repeated repetition,
/// which is refused. kPerl (tiktoken): they match at the text's ends, and `{1,3}+` is possessive.
enum class Dialect : uint8_t { kOniguruma, kPerl };

/// The longest supported pattern, in bytes; published tokenizers have some hundreds.
inline constexpr size_t kMaxPatternBytes = 8192;

/// A tokenizer's pattern, matched by PCRE2's JIT: character classes, `\p{..}` of general categories, `\s \d \w`,
/// groups, lookaround, quantifiers. Character classes are those of Unicode 16, independent of PCRE2's version, and `\s`
/// is White_Space without PCRE2's U+180E. Syntax with another meaning in PCRE2 is refused by name. Immutable; matching
/// is thread-safe with one `Scratch` per thread. Source: pcre2pattern(3); Oniguruma, doc/RE.
class Regex {
 public:
  /// `where` names the field, for errors (input errors).
  Regex(std::string_view pattern, Dialect dialect, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Memory of one matching thread.
  class Scratch {
   public:
    /// Limit on the length of a text that rules rewrite; see TextLimit.
    size_t most_bytes = ~size_t{0};
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Regex;
    struct Parts;
    std::unique_ptr<Parts> parts_;
  };

  /// Calls `match` with the bounds of each match of `text`, valid UTF-8, from left to right, including empty ones.
  /// Throws an input error when a match takes more steps than PCRE2 allows (10 million) or more than 64 MiB of stack.
  template <typename Match>
  void find_all(std::string_view text, Scratch& scratch, Match match) const {
    Finder finder{text};
    while (next(finder, scratch)) match(finder.found);
  }

 private:
  struct Finder {
    std::string_view text;
    Span found;
    size_t at = 0;
    bool after_match = false;
  };
  bool next(Finder& finder, Scratch& scratch) const;

  struct Code;
  std::unique_ptr<Code> code_;
  std::string where_;
};

/// The pattern for PCRE2: properties and `\s \d \w` as sets of Unicode 16. For tests.
std::string translated_pattern(std::string_view pattern, Dialect dialect, const std::string& where);

}  // namespace ashlar::data
