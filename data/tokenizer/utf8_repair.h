#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Returns how many invalid bytes at the beginning of `text` one U+FFFD replaces: the longest prefix of `text` that
/// begins a valid character, or one byte if there is none. Source: The Unicode Standard 16, 3.9, maximal subparts.
size_t ill_formed_bytes(std::string_view text);

/// Returns `text` with invalid bytes replaced by U+FFFD if `replace` is true, removed otherwise. Sets `places` to the
/// number of replaced or removed places.
std::string repaired(std::string_view text, bool replace, int64_t& places);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace ashlar::data
