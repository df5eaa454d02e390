#include "launch/inference/text_stream.h"

#include <algorithm>
#include <string_view>

namespace ashlar::inference {
namespace {

constexpr size_t kIdsOfACharacter = 4;  // at most: one a byte

/// Whether the text may end within a character: its bytes, or the replacement character that some decoders put there.
bool is_cut(std::string_view text) {
  if (text.ends_with("\xEF\xBF\xBD")) return true;
  size_t tail = 0;
  while (tail < 3 && tail < text.size() && (text[text.size() - 1 - tail] & 0xC0) == 0x80) ++tail;
  if (tail >= text.size()) return false;
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
  const size_t needed = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  return needed > tail;
}

}  // namespace

std::string TextStream::add(int32_t id) {
  ids_.push_back(id);
  return flush(false);
}

std::string TextStream::rest() { return told_ < ids_.size() ? flush(true) : ""; }

std::string TextStream::flush(bool all) {
  const std::span<const int32_t> ids(ids_);
  const std::string known = tokenizer_.decode(ids.subspan(anchor_, told_ - anchor_));
  const std::string text = tokenizer_.decode(ids.subspan(anchor_));
  if (!all && ids_.size() - told_ < kIdsOfACharacter && is_cut(text)) return "";
  anchor_ = told_;
  told_ = ids_.size();
  return text.substr(std::min(known.size(), text.size()));
}

}  // namespace ashlar::inference
