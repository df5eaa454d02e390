#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizer/unicode.h"

// Shared by the files of this folder; unicode.h is the interface.
namespace ashlar::data::tables {

inline constexpr const char* kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                 "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                 "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

/// For every `stride`-th code point c from first to last, the lower case is c + distance.
struct LowerRun {
  char32_t first, last;
  int32_t stride, distance;
};

/// General categories of Unicode 16. An entry is 32 * (first code point of a run) + (index in kCategoryNames).
extern const std::span<const uint32_t> kCategoryRuns;
extern const std::span<const LowerRun> kLowerRuns;  ///< lower case of Unicode 17
/// Code points added after Unicode 9 that have a decomposition or a combining class.
extern const std::span<const CodeRange> kNotInUnicode9;
extern const std::span<const CodeRange> kPunctuationSince9;  ///< category P in Unicode 16, but not in Unicode 8
extern const std::span<const CodeRange> kOtherAlphabetic;    ///< word characters not in L, M, Nd, Pc
/// Code points with Grapheme_Cluster_Break = Extend whose category is neither Mn nor Me.
extern const std::span<const CodeRange> kExtendNotMn;
extern const std::span<const CodeRange> kPrepend;  ///< code points with Grapheme_Cluster_Break = Prepend
/// Code points of category Mc whose Grapheme_Cluster_Break is not SpacingMark.
extern const std::span<const CodeRange> kNoSpacingMark;

}  // namespace ashlar::data::tables
