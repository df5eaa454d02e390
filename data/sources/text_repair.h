#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/enum_names.h"

namespace ashlar::data {

/// What happens to JSON lines that cannot be parsed, and to invalid UTF-8. kStop: an error. kSkip: the line is skipped,
/// or in other text the invalid bytes. kReplace: U+FFFD replaces the bytes and lone surrogates; a line that still
/// cannot be parsed is skipped.
enum class BadLines : uint8_t { kStop, kSkip, kReplace };
constexpr auto names_of(BadLines) { return enum_names<BadLines>("stop", "skip", "replace"); }
using ashlar::name_of;

/// Number of invalid bytes at the beginning of `text` that one U+FFFD replaces: the longest prefix of a character, or
/// one byte. Source: The Unicode Standard 16, 3.9, maximal subparts.
size_t ill_formed_bytes(std::string_view text);

/// `text` with invalid bytes removed or replaced by U+FFFD; `places` is their number.
std::string repaired(std::string_view text, bool replace, int64_t& places);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace ashlar::data
