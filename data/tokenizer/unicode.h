#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Character properties. Ids depend on them, so each property has the Unicode version that the `tokenizers` library
// (0.23) uses for it.
namespace ashlar::data {

/// Code points from first to last, inclusive.
struct CodeRange {
  char32_t first = 0, last = 0;
  bool operator==(const CodeRange&) const = default;
};
/// A set of code points. Its ranges are in ascending order, and neither overlap nor touch.
using CodeSet = std::vector<CodeRange>;

bool contains(std::span<const CodeRange> set, char32_t c);
CodeSet complement(const CodeSet& set);  ///< all code points that are neither in `set` nor surrogates
CodeSet difference(const CodeSet& a, const CodeSet& b);

/// Returns the code points of a general category of Unicode 16 by its short name: one category ("Lu") or a group ("L").
/// Returns an empty set for an unknown name.
CodeSet category(std::string_view name);

bool is_white_space(char32_t c);  ///< Unicode property White_Space
CodeSet white_space();            ///< set of the code points for which is_white_space is true
bool is_numeric(char32_t c);      ///< categories Nd, Nl, No of Unicode 17, for the pre-tokenizer Digits
/// Category P of Unicode 8 and ASCII punctuation, for the pre-tokenizer Punctuation.
bool is_punctuation(char32_t c);
bool is_word(char32_t c);   ///< Alphabetic, M, Nd, Pc, Join_Control of Unicode 16, for the flag single_word
CodeSet word_characters();  ///< set of the code points for which is_word is true
/// Returns the characters that `\w` of Oniguruma matches. They include superscripts and fractions of Latin-1, and
/// exclude Join_Control.
CodeSet pattern_word_characters();

/// Appends the lower case of `c`, by the full case mappings of Unicode 17 that do not depend on the context.
void append_lower(char32_t c, std::string& out);

/// The normalisation forms of Unicode 9. `text` must be valid UTF-8.
enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string normalised(NormalForm form, std::string_view text);

/// Returns the end of the grapheme cluster that starts at `begin`. It is exact only for clusters of fewer than 6 bytes.
/// Source: UAX 29, version 16, rules GB3 to GB9b.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace ashlar::data
