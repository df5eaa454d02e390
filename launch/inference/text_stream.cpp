#include "launch/inference/text_stream.h"

#include <string_view>

namespace ashlar::inference {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Returns the length of the prefix of `text` that further ids cannot change: everything except an incomplete last
/// character or the replacement character for it.
size_t certain_size(std::string_view text) {
  if (text.ends_with(kReplacement)) return text.size() - kReplacement.size();
  size_t tail = 0;
  while (tail < 3 && tail < text.size() && (text[text.size() - 1 - tail] & 0xC0) == 0x80) ++tail;
  if (tail >= text.size()) return text.size();
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
  const size_t needed = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  return needed > tail ? text.size() - 1 - tail : text.size();
}

}  // namespace

TextStream::TextStream(const data::Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer), ids_(before.begin(), before.end()), returned_(ids_.size()) {
  known_ = tokenizer_.decode(ids_);
}

std::string TextStream::add(int32_t id) {
  ids_.push_back(id);
  if (tokenizer_.is_byte(id)) return "";  // the next id may continue this run of byte tokens
  return flush(false);
}

std::string TextStream::rest() { return returned_ < ids_.size() ? flush(true) : ""; }

std::string TextStream::flush(bool all) {
  const std::span<const int32_t> ids(ids_);
  std::string text = tokenizer_.decode(ids.subspan(anchor_));
  if (!text.starts_with(known_)) {
    // The new ids have changed the text of previous ids, which ended within a run of byte tokens. That text has already
    // been returned, so decoding restarts at the first id whose text has not been returned.
    anchor_ = returned_;
    known_.clear();
    text = tokenizer_.decode(ids.subspan(anchor_));
  }
  const size_t certain = all ? text.size() : certain_size(text);
  if (certain < known_.size()) return "";
  std::string fresh = text.substr(known_.size(), certain - known_.size());
  if (certain < text.size()) {
    known_ += fresh;
    return fresh;
  }
  anchor_ = returned_;
  returned_ = ids_.size();
  known_ = tokenizer_.decode(ids.subspan(anchor_));
  return fresh;
}

}  // namespace ashlar::inference
