#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace ashlar::data {

/// A SentencePiece Unigram model that encodes like release 0.2 of the library, including normalization. The scores of a
/// segmentation are added as floats from left to right. If the exact sums of two segmentations are equal, the rounding
/// decides between them. Earlier releases do one rounding less and split runs such as "000" differently. Immutable.
/// Source: Kudo 2018, arXiv:1804.10959; sentencepiece, src/normalizer.cc, src/unigram_model.cc.
class SentencePieceUnigram {
 public:
  explicit SentencePieceUnigram(const SentencePieceModelFile& model);

  /// Appends the ids of a text, which must be valid UTF-8.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  /// Returns the normalized text, in which spaces are written as in the pieces.
  std::string normalised(std::string_view text) const;

 private:
  std::string_view rule_for(std::string_view text, size_t& taken) const;
  std::string_view normal_prefix(std::string_view text, size_t& taken) const;

  const bool byte_fallback_, space_as_suffix_, dummy_prefix_, remove_extra_spaces_, escape_spaces_;
  std::vector<uint32_t> rules_;  ///< normalization rules, a double-array trie in the format of Darts
  std::string rule_texts_;
  ByteTrie pieces_, user_defined_;
  std::vector<float> scores_;  ///< indexed by id
  float unknown_score_ = 0;
  int32_t unknown_ = 0;
  std::array<int32_t, 256> bytes_{};
};

}  // namespace ashlar::data
