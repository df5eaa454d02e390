#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// Part of a text: bytes [begin, end).
struct Span {
  uint32_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// Whose pattern it is. kOniguruma (tokenizer.json): `^` and `$` are those of lines, `{1,3}+` is a repeated repetition,
/// which is refused. kPerl (tiktoken): of the text, and possessive.
enum class Dialect : uint8_t { kOniguruma, kPerl };

/// The longest pattern that is taken, in bytes; those of published tokenizers have some hundreds.
inline constexpr size_t kMaxPatternBytes = 8192;

/// A pattern of a tokenizer, matched by PCRE2's compiled code: character classes, `\p{..}` of general categories,
/// `\s \d \w`, groups, lookaround, quantifiers. Character classes are those of Unicode 16, whatever PCRE2 was built
/// with, and `\s` is White_Space, where PCRE2 adds U+180E. Whatever could mean another thing there is refused by name.
/// Immutable; matching is safe from many threads, each with a `Scratch` of its own. Source: pcre2pattern(3); Oniguruma,
/// doc/RE.
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
    /// How long a text may become that rules rewrite; see TextLimit.
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

  /// Calls `match` with the bounds of each match of `text`, valid UTF-8, from left to right, empty ones too. Throws an
  /// input error when a match takes more steps than PCRE2 allows (10 million) or more than 64 MiB of stack.
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

/// The pattern as PCRE2 takes it: properties and `\s \d \w` as sets of Unicode 16. For tests.
std::string translated_pattern(std::string_view pattern, Dialect dialect, const std::string& where);

}  // namespace ashlar::data
