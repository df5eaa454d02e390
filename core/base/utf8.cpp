#include "core/base/utf8.h"

namespace ashlar {

void append_utf8(char32_t value, std::string& out) {
  const auto v = static_cast<uint32_t>(value);
  char bytes[4];
  size_t count = 0;
  const auto put = [&](uint32_t byte) { bytes[count++] = static_cast<char>(byte); };
  if (v < 0x80U) {
    put(v);
  } else if (v < 0x800U) {
    put(0xC0U | (v >> 6));
    put(0x80U | (v & 0x3FU));
  } else if (v < 0x10000U) {
    put(0xE0U | (v >> 12));
    put(0x80U | ((v >> 6) & 0x3FU));
    put(0x80U | (v & 0x3FU));
  } else {
    put(0xF0U | (v >> 18));
    put(0x80U | ((v >> 12) & 0x3FU));
    put(0x80U | ((v >> 6) & 0x3FU));
    put(0x80U | (v & 0x3FU));
  }
  out.append(bytes, count);
}

}  // namespace ashlar
