#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace ashlar::data {

/// Tokens by id and ids by token. Ids may have gaps.
class Vocabulary {
 public:
  /// False, and nothing is changed, when the token has another id, or the id another token.
  bool add(const std::string& token, int32_t id);
  std::optional<int32_t> find(std::string_view token) const;
  /// Empty for an id that is not used.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool used(int32_t id) const { return id >= 0 && id < size() && used_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  ///< the last id and one
  /// Ids of the tokens "<0x00>" to "<0xFF>"; -1 where there is none.
  std::vector<int32_t> byte_tokens() const;

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> used_;
  absl::flat_hash_map<std::string, int32_t> ids_;
};

}  // namespace ashlar::data
