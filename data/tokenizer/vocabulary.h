#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash_map.h"

namespace ashlar::data {

/// Tokens by id and ids by token. Ids may have gaps.
class Vocabulary {
 public:
  /// False, without a change, if the token has another id, or the id another token.
  bool add(const std::string& token, int32_t id);
  std::optional<int32_t> find(std::string_view token) const;
  /// Empty for an unused id.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool used(int32_t id) const { return id >= 0 && id < size() && used_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  ///< last id + 1
  /// Ids of the tokens "<0x00>" to "<0xFF>"; -1 if absent.
  std::vector<int32_t> byte_tokens() const;

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> used_;
  HashMap<std::string, int32_t> ids_;
};

/// The largest id that a file of tokens may give.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

/// The longest token that is matched in a text, in bytes: a text of one repeated character costs that many steps at
/// each position. The longest in published tokenizers has some hundreds.
inline constexpr size_t kMaxTokenBytes = 1024;

/// True if an id is too far beyond the number of tokens: memory grows with the largest id. Published vocabularies have
/// gaps of some hundreds.
constexpr bool id_too_far(int64_t id, size_t tokens) { return id >= 4 * static_cast<int64_t>(tokens) + 100'000; }

/// The byte of a token "<0x41>"; -1 for any other token.
int byte_of_token(std::string_view token);

}  // namespace ashlar::data
