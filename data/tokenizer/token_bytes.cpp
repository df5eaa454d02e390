#include "data/tokenizer/token_bytes.h"

#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/forms.h"

namespace ashlar::data {
namespace {

/// Returns a token that stands for a visible character, after which other tokens are decoded: at the beginning of a
/// text, decoding may remove spaces.
int32_t visible_token(const Tokenizer& tokenizer, const std::vector<bool>& without_text) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (without_text[static_cast<size_t>(id)] || tokenizer.is_byte(id)) continue;
    const std::string text = tokenizer.decode({&id, 1});
    if (!text.empty() && text.back() > ' ' && text.back() <= '~') return id;
  }
  return -1;
}

}  // namespace

TokenBytes::TokenBytes(const Tokenizer& tokenizer)
    : inside_(static_cast<size_t>(tokenizer.vocab_size())), first_(inside_), eod_id_(tokenizer.eod_id()) {
  const auto* const form = dynamic_cast<const FormTokenizer*>(&tokenizer);
  std::vector<bool> without_text(inside_.size());
  without_text[static_cast<size_t>(eod_id_)] = true;
  if (form != nullptr) {
    for (const std::string& name : form->special_tokens())
      if (const auto id = form->id_of(name)) without_text[static_cast<size_t>(*id)] = true;
  }
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.has_token(id)) without_text[static_cast<size_t>(id)] = true;
  const bool byte_level = form != nullptr && form->byte_level();
  const int32_t visible = byte_level ? -1 : visible_token(tokenizer, without_text);
  const size_t before = visible < 0 ? 0 : tokenizer.decode({&visible, 1}).size();
  const ByteCharacters characters;
  std::string bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto at = static_cast<size_t>(id);
    if (without_text[at]) continue;
    if (tokenizer.is_byte(id)) {
      first_[at] = inside_[at] = 1;
    } else if (byte_level) {
      // Decoding would replace a part of a character by U+FFFD.
      const std::string spelling = form->token(id);
      first_[at] = inside_[at] =
          static_cast<int32_t>(characters.read(spelling, bytes) ? bytes.size() : spelling.size());
    } else {
      first_[at] = inside_[at] = static_cast<int32_t>(tokenizer.decode({&id, 1}).size());
      if (visible < 0) continue;
      const int32_t both[] = {visible, id};
      inside_[at] = static_cast<int32_t>(tokenizer.decode(both).size() - before);
    }
  }
}

}  // namespace ashlar::data
