#include "data/tokenizer/utf8_repair.h"

#include <algorithm>

#include "data/tokenizer/pipeline_tokenizer.h"

namespace ashlar::data {

size_t ill_formed_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<int>(static_cast<uint8_t>(text[i])) : -1; };
  const int lead = byte(0);
  const size_t length = lead < 0xC2 || lead > 0xF4 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const int low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const int high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t n = 1;
  while (n < length && byte(n) >= (n == 1 ? low : 0x80) && byte(n) <= (n == 1 ? high : 0xBF)) ++n;
  return std::min(n, text.size());
}

std::string repaired(std::string_view text, bool replace, int64_t& places) {
  std::string out;
  places = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bad = valid_utf8_end(text, at);
    out += text.substr(at, bad - at);
    if (bad == text.size()) break;
    ++places;
    if (replace) out += kReplacement;
    at = bad + ill_formed_bytes(text.substr(bad));
  }
  return out;
}

}  // namespace ashlar::data
