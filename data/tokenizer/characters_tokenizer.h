#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// One id for each distinct Unicode code point of the corpus, in ascending order; the next id is the end-of-document
/// id. Texts are UTF-8. A code point that the corpus did not contain cannot be encoded.
class CharactersTokenizer final : public Tokenizer {
 public:
  /// `vocabulary` must be in ascending order, without duplicates.
  explicit CharactersTokenizer(std::vector<char32_t> vocabulary);

  using Tokenizer::encode;
  std::string identity() const override { return "characters"; }
  int32_t vocab_size() const override { return static_cast<int32_t>(vocabulary_.size()) + 1; }
  int32_t eod_id() const override { return static_cast<int32_t>(vocabulary_.size()); }
  SplitPoints split_points() const override { return SplitPoints::kCodePoint; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_json() const override;
  /// Returns a tokenizer.json of BPE without merges over the characters, in which "<|endoftext|>" is the
  /// end-of-document token. Programs that read it drop characters that are not in the vocabulary.
  std::string tokenizer_json_text() const override;

 private:
  std::vector<char32_t> vocabulary_;
  std::vector<int32_t> id_of_;  ///< indexed by code point; -1 = not in the vocabulary
};

std::unique_ptr<CorpusScan> make_characters_scan();

}  // namespace ashlar::data
