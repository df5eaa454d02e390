#include "data/tokenizer/vocabulary.h"

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace ashlar::data {

bool Vocabulary::add(const std::string& token, int32_t id) {
  if (used(id) && tokens_[static_cast<size_t>(id)] != token) return false;
  const auto [at, fresh] = ids_.try_emplace(token, id);
  if (!fresh && at->second != id) return false;
  if (id >= size()) {
    tokens_.resize(static_cast<size_t>(id) + 1);
    used_.resize(tokens_.size());
  }
  tokens_[static_cast<size_t>(id)] = token;
  used_[static_cast<size_t>(id)] = true;
  return true;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto at = ids_.find(absl::string_view(token.data(), token.size()));
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

std::vector<int32_t> Vocabulary::byte_tokens() const {
  std::vector<int32_t> ids(256);
  for (int byte = 0; byte < 256; ++byte)
    ids[static_cast<size_t>(byte)] = find(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  return ids;
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace ashlar::data
