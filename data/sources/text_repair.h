#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// What is done with a JSON line that cannot be read and with bytes that are no UTF-8. kStop: an error. kSkip: the line
/// is left out, of other text the bytes. kReplace: U+FFFD for the bytes, and for a surrogate without its pair; a line
/// that is still none is left out.
enum class BadLines : uint8_t { kStop, kSkip, kReplace };

/// Bytes at the beginning of `text`, which are no character, that one U+FFFD stands for: the longest beginning of a
/// character, or one byte. Source: The Unicode Standard 16, 3.9, maximal subparts.
size_t ill_formed_bytes(std::string_view text);

/// `text` with each of those left out, or replaced by U+FFFD; `places` is how many there were.
std::string repaired(std::string_view text, bool replace, int64_t& places);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace ashlar::data
