#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// The characters that represent bytes in byte-level vocabularies. A printable Latin-1 byte is represented by itself.
/// The other bytes are represented by U+0100 and the following code points, in order. Source: Radford et al. 2019,
/// GPT-2's bytes_to_unicode.
class ByteCharacters {
 public:
  ByteCharacters();
  char32_t of_byte(uint8_t byte) const { return characters_[byte]; }
  /// Returns the byte that a character represents; -1 if it represents no byte.
  int byte_of(char32_t c) const { return c < bytes_.size() ? bytes_[c] : -1; }

  std::string written(std::string_view bytes) const;
  /// Converts characters to the bytes that they represent. Returns false if a character represents no byte or the text
  /// is not UTF-8; `bytes` is then unspecified.
  bool read(std::string_view written, std::string& bytes) const;

 private:
  std::array<char32_t, 256> characters_;
  std::array<std::string, 256> utf8_;
  std::vector<int> bytes_;
};

}  // namespace ashlar::data
