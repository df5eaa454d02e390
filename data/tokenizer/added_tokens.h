#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {

/// A token that is matched in the text before the model encodes the rest; `added_tokens` of tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string pattern;  ///< the matched text: the content, or its normalized form
  bool special = false, normalized = false, single_word = false, lstrip = false, rstrip = false;
  bool operator==(const AddedToken&) const = default;
};

/// A piece of text, or an added token in its place.
struct Segment {
  Span span;
  int32_t id = -1;  ///< -1: text
};

/// Finds added tokens: tokens that are not `normalized` in the text, the others in the normalized rest. Leftmost first,
/// then longest. A token with single_word that is not a separate word stays text; lstrip and rstrip include the white
/// space before and after.
class AddedTokens {
 public:
  /// Normalizes the patterns. Adds the tokens to the vocabulary. Input error for an id of another token.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, Vocabulary& vocabulary,
              const std::string& where);
  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  /// Splits `text` into segments; `normalized` selects the kind of tokens. With `as_text`, special tokens are recorded
  /// there but left in the text.
  void split(std::string_view text, bool normalized, std::vector<Segment>& segments,
             std::vector<SpecialSpelling>* as_text = nullptr) const;
  /// Marks a token as special, if it is one of these.
  void make_special(int32_t id);
  bool any(bool normalized) const { return finders_[normalized ? 1 : 0].any; }

 private:
  struct Finder {
    std::array<bool, 256> begins{};  ///< true for bytes that begin a token
    bool any = false;
    ByteTrie tokens;  ///< indices into tokens_ by pattern
  };
  void make_finders();

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> by_id_;
  Finder finders_[2];
};

/// A token as an entry of that list.
nlohmann::ordered_json json_of(const AddedToken& token);
/// The list under "added_tokens"; empty if absent.
std::vector<AddedToken> read_added_tokens(Fields& fields);

}  // namespace ashlar::data
