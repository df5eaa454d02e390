#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace ashlar::data {

/// Returns a SentencePiece model as a tokenizer.json that gives the same ids as the library, except in two cases: the
/// spelling of a control token (Unigram: also of a byte token) in a text becomes the token; and if a normalization rule
/// matches only the beginning of a character with combining marks, tokenizer.json replaces the whole character. The
/// tokenizer.json contains the pieces and scores, and the normalization as steps. For BPE, each way to make a piece
/// from two other pieces becomes a merge, in descending order of score. `before` and `after` are the ids that the
/// template adds around a text. `added` are tokens that are matched in a text besides the tokens of the model. Throws
/// an input error for a model that tokenizer.json cannot express.
std::string tokenizer_json_of_sentencepiece(const SentencePieceModelFile& model, const std::vector<int32_t>& before,
                                            const std::vector<int32_t>& after, std::span<const AddedToken> added = {});

}  // namespace ashlar::data
