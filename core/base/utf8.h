#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar {

/// A decoded code point and the number of its bytes in UTF-8. `bytes` is 0 if the text does not begin with a valid code
/// point.
struct CodePoint {
  char32_t value = 0;
  int bytes = 0;
};

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

/// Decodes the code point at the start of a non-empty text. Overlong forms, surrogates and values above U+10FFFF are
/// invalid.
/// Source: The Unicode Standard, table 3-7, well-formed UTF-8 byte sequences.
inline CodePoint next_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const uint32_t b0 = byte(0);
  if (b0 < 0x80U) return {b0, 1};
  if (b0 >= 0xC2U && b0 < 0xE0U && continues(1)) return {((b0 & 0x1FU) << 6) | (byte(1) & 0x3FU), 2};
  if (b0 >= 0xE0U && b0 < 0xF0U && continues(1) && continues(2)) {
    const uint32_t v = ((b0 & 0x0FU) << 12) | ((byte(1) & 0x3FU) << 6) | (byte(2) & 0x3FU);
    if (v >= 0x800U && (v < 0xD800U || v > 0xDFFFU)) return {v, 3};
  }
  if (b0 >= 0xF0U && b0 < 0xF5U && continues(1) && continues(2) && continues(3)) {
    const uint32_t v = ((b0 & 0x07U) << 18) | ((byte(1) & 0x3FU) << 12) | ((byte(2) & 0x3FU) << 6) | (byte(3) & 0x3FU);
    if (v >= 0x10000U && v <= kLastCodePoint) return {v, 4};
  }
  return {};
}

/// Appends the UTF-8 encoding of a code point to `out`.
void append_utf8(char32_t value, std::string& out);

}  // namespace ashlar
