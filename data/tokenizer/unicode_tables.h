#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizer/unicode.h"

// Shared by the files of this folder; unicode.h is the interface.
namespace ashlar::data::tables {

inline constexpr const char* kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                 "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                 "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

/// The lower case of every `stride`-th of first..last is at `distance`.
struct LowerRun {
  char32_t first, last;
  int32_t stride, distance;
};

extern const std::span<const uint32_t> kCategoryRuns;        ///< Unicode 16
extern const std::span<const LowerRun> kLowerRuns;           ///< Unicode 17
extern const std::span<const CodeRange> kNotInUnicode9;      ///< characters with a decomposition or a combining class
extern const std::span<const CodeRange> kPunctuationSince9;  ///< P that Unicode 8 does not have
extern const std::span<const CodeRange> kOtherAlphabetic;    ///< word characters not in L, M, Nd, Pc
extern const std::span<const CodeRange> kExtendNotMn;        ///< Grapheme_Cluster_Break = Extend not in Mn, Me
extern const std::span<const CodeRange> kPrepend;            ///< Grapheme_Cluster_Break = Prepend
extern const std::span<const CodeRange> kNoSpacingMark;      ///< Mc without SpacingMark

}  // namespace ashlar::data::tables
