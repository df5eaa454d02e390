#include "data/tokenizer/byte_characters.h"

#include "core/base/utf8.h"

namespace ashlar::data {

ByteCharacters::ByteCharacters() : characters_{}, bytes_(0x144, -1) {
  char32_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    characters_[byte] = itself ? static_cast<char32_t>(byte) : next++;
    append_utf8(characters_[byte], utf8_[byte]);
    bytes_[characters_[byte]] = static_cast<int>(byte);
  }
}

std::string ByteCharacters::written(std::string_view bytes) const {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char c : bytes) text += utf8_[static_cast<uint8_t>(c)];
  return text;
}

bool ByteCharacters::read(std::string_view written, std::string& bytes) const {
  bytes.clear();
  for (size_t at = 0; at < written.size();) {
    const CodePoint c = next_code_point(written.substr(at));
    const int byte = c.bytes == 0 ? -1 : byte_of(c.value);
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    at += static_cast<size_t>(c.bytes);
  }
  return true;
}

}  // namespace ashlar::data
