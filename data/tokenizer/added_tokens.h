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

/// A token that is found in the text itself, before the model sees the rest; `added_tokens` of tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string pattern;  ///< what is looked for: the content, or what the normaliser makes of it
  bool special = false, normalized = false, single_word = false, lstrip = false, rstrip = false;
  bool operator==(const AddedToken&) const = default;
};

/// A piece of text, or an added token in its place.
struct Segment {
  Span span;
  int32_t id = -1;  ///< -1: text
};

/// Finds added tokens: those that are not `normalized` in the text, the others in what the normaliser makes of the
/// rest. Leftmost first, then longest. One that must be a word of its own and is not is passed over as text; lstrip and
/// rstrip take the white space before and behind.
class AddedTokens {
 public:
  /// Normalises the patterns. Tokens go into the vocabulary. Input errors: an id that is another token's.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, Vocabulary& vocabulary,
              const std::string& where);
  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  /// Cuts `text` into segments; `normalized`: which of the two kinds is looked for. With `as_text`, special tokens are
  /// found too, but noted there and left in the text.
  void cut(std::string_view text, bool normalized, std::vector<Segment>& segments,
           std::vector<SpecialSpelling>* as_text = nullptr) const;
  /// That token is special from now on, if it is one of these.
  void make_special(int32_t id);
  bool any(bool normalized) const { return finders_[normalized ? 1 : 0].any; }

 private:
  struct Finder {
    std::array<bool, 256> begins{};  ///< by first byte
    bool any = false;
    ByteTrie tokens;  ///< places in tokens_ by what is looked for
  };
  void make_finders();

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> by_id_;
  Finder finders_[2];
};

/// A token as an entry of that list.
nlohmann::ordered_json json_of(const AddedToken& token);
/// The list under "added_tokens"; none when there is no list.
std::vector<AddedToken> read_added_tokens(Fields& fields);

}  // namespace ashlar::data
