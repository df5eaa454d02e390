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

/// Syntax of a pattern. kOniguruma (tokenizer.json): `^` and `$` match at line boundaries; `{1,3}+` would repeat a
/// repetition and is refused. kPerl (tiktoken): `^` and `$` match at the ends of the text; `{1,3}+` is a possessive
/// quantifier.
enum class Dialect : uint8_t { kOniguruma, kPerl };

/// The longest supported pattern, in bytes. The patterns of published tokenizers have a few hundred bytes.
inline constexpr size_t kMaxPatternBytes = 8192;

/// A tokenizer's pattern, matched by PCRE2's JIT. It may contain character classes, `\p{..}` of general categories, `\s
/// \d \w`, groups, lookaround and quantifiers. Character classes are those of Unicode 16, independent of PCRE2's
/// version. `\s` is White_Space, without U+180E, which PCRE2 includes. Syntax that means something else in PCRE2 than
/// in the pattern's dialect is an input error that names the syntax. Immutable; matching is thread-safe with one
/// `Scratch` per thread. Source: pcre2pattern(3); Oniguruma, doc/RE.
class Regex {
 public:
  /// `where` names the field in input errors.
  Regex(std::string_view pattern, Dialect dialect, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Scratch memory of one thread.
  class Scratch {
   public:
    /// Maximum length in bytes of a text that a step of the tokenizer makes; see TextLimit.
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

  /// Calls `match` with the bounds of each match in `text`, from left to right, including empty matches. `text` must be
  /// valid UTF-8. Throws an input error when a match takes more steps than PCRE2 allows (10 million) or more than 64
  /// MiB of stack.
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

/// Returns the pattern in the syntax of PCRE2, with properties and `\s \d \w` as sets of Unicode 16. Declared here
/// since tests call it too.
std::string translated_pattern(std::string_view pattern, Dialect dialect, const std::string& where);

}  // namespace ashlar::data
