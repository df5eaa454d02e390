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

/// A token that is matched in the text before the model encodes the rest of the text: an entry of `added_tokens` in
/// tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string pattern;  ///< the text to match: `content`; if `normalized` is true, its normalized form
  bool special = false, normalized = false, single_word = false, lstrip = false, rstrip = false;
  bool operator==(const AddedToken&) const = default;
};

/// A part of a text: ordinary text, or an added token.
struct Segment {
  Span span;
  int32_t id = -1;  ///< id of the added token; -1 for ordinary text
};

/// Finds added tokens in a text. A token whose flag `normalized` is false is matched in the original text. All other
/// tokens are matched in the rest of the text after normalization. The leftmost match is used, and of several matches
/// at one place the longest. If the token has the flag `single_word`, a match inside a longer word stays text. With the
/// flag `lstrip` or `rstrip`, a match includes the white space before or after it.
class AddedTokens {
 public:
  /// Normalizes the patterns and adds the tokens to `vocabulary`. `where` names the field in errors. Throws an input
  /// error if an id is used by another token, if the vocabulary has another id for the token, if an id is too large, or
  /// if a pattern is too long.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, Vocabulary& vocabulary,
              const std::string& where);
  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  /// Splits `text` into segments. Matches only tokens whose flag `normalized` equals the argument `normalized`. If
  /// `as_text` is not null, special tokens stay ordinary text and their spellings are appended to `as_text`.
  void split(std::string_view text, bool normalized, std::vector<Segment>& segments,
             std::vector<SpecialSpelling>* as_text = nullptr) const;
  /// Marks the added token with this id as special. Has no effect if no added token has the id.
  void make_special(int32_t id);
  bool any(bool normalized) const { return finders_[normalized ? 1 : 0].any; }

 private:
  struct Finder {
    std::array<bool, 256> begins{};  ///< true for bytes that begin a token
    bool any = false;
    ByteTrie tokens;  ///< maps patterns to indices in tokens_
  };
  void make_finders();

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> by_id_;
  Finder finders_[2];
};

/// Returns a token as an entry of `added_tokens` in tokenizer.json.
nlohmann::ordered_json json_of(const AddedToken& token);
/// Reads the list `added_tokens` of tokenizer.json; empty if absent.
std::vector<AddedToken> read_added_tokens(Fields& fields);

}  // namespace ashlar::data
