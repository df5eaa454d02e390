#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Character properties in the Unicode versions that the reference tokenizers library (0.23) uses, which differ by
// property: ids depend on them.
namespace ashlar::data {

/// Code points [first, last].
struct CodeRange {
  char32_t first = 0, last = 0;
  bool operator==(const CodeRange&) const = default;
};
/// Ascending, disjoint and not adjacent.
using CodeSet = std::vector<CodeRange>;

bool contains(std::span<const CodeRange> set, char32_t c);
CodeSet complement(const CodeSet& set);  ///< within the scalar values, without surrogates
CodeSet difference(const CodeSet& a, const CodeSet& b);

/// General categories of Unicode 16 by their short names, one ("Lu") or a group ("L"). Empty for an unknown name.
CodeSet category(std::string_view name);

bool is_white_space(char32_t c);  ///< White_Space
CodeSet white_space();            ///< set of the code points for which is_white_space is true
bool is_numeric(char32_t c);      ///< Nd, Nl, No of Unicode 17, as Digits sees them
bool is_punctuation(char32_t c);  ///< P of Unicode 8 and ASCII punctuation, as Punctuation sees them
bool is_word(char32_t c);         ///< Alphabetic, M, Nd, Pc, Join_Control of Unicode 16, as single_word sees them
CodeSet word_characters();        ///< set of the code points for which is_word is true
/// `\w` of Oniguruma: includes superscripts and fractions of Latin-1, excludes Join_Control.
CodeSet pattern_word_characters();

/// Lower case by full mappings without context, of Unicode 17.
void append_lower(char32_t c, std::string& out);

/// The normalisation forms of Unicode 9. Text is valid UTF-8.
enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string normalised(NormalForm form, std::string_view text);

/// The end of the grapheme cluster that starts at `begin`, exact for clusters of less than 6 bytes.
/// Source: UAX 29, version 16, rules GB3 to GB9b.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace ashlar::data
