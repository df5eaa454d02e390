#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash_map.h"

namespace ashlar::data {

/// Maps ids to tokens and tokens to ids. There may be gaps between ids.
class Vocabulary {
 public:
  /// Adds a token. Returns false and changes nothing if the token already has another id, or the id another token.
  bool add(const std::string& token, int32_t id);
  std::optional<int32_t> find(std::string_view token) const;
  /// Returns the token of an id; empty for an unused id.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool used(int32_t id) const { return id >= 0 && id < size() && used_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  ///< largest id + 1
  /// Ids of the tokens "<0x00>" to "<0xFF>"; -1 if absent.
  std::vector<int32_t> byte_tokens() const;

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> used_;
  HashMap<std::string, int32_t> ids_;
};

/// The largest id that a tokenizer file may assign.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

/// Maximum length in bytes of a token that is matched in a text. It bounds the time of encoding, since a match may take
/// one step per byte of the token, at each position of the text. The longest tokens of published tokenizers have a few
/// hundred bytes.
inline constexpr size_t kMaxTokenBytes = 1024;

/// True if an id is too large for the number of tokens. Such ids are errors, since memory grows with the largest id.
/// Published vocabularies have gaps of a few hundred ids.
constexpr bool id_too_far(int64_t id, size_t tokens) { return id >= 4 * static_cast<int64_t>(tokens) + 100'000; }

/// Returns the byte of a token such as "<0x41>"; -1 for any other token.
int byte_of_token(std::string_view token);

}  // namespace ashlar::data
