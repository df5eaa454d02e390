#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// Characters for bytes in byte-level vocabularies: printable Latin-1 bytes are themselves, the others are U+0100 and
/// following, in order. Source: Radford et al. 2019, GPT-2's bytes_to_unicode.
class ByteCharacters {
 public:
  ByteCharacters();
  char32_t of_byte(uint8_t byte) const { return characters_[byte]; }
  /// -1 for a character that represents no byte.
  int byte_of(char32_t c) const { return c < bytes_.size() ? bytes_[c] : -1; }

  std::string written(std::string_view bytes) const;
  /// False, with `bytes` unspecified, when a character represents no byte or the text is not UTF-8.
  bool read(std::string_view written, std::string& bytes) const;

 private:
  std::array<char32_t, 256> characters_;
  std::array<std::string, 256> utf8_;
  std::vector<int> bytes_;
};

}  // namespace ashlar::data
