#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace ashlar::data {

/// A SentencePiece model as a tokenizer.json with the same ids: its pieces and scores (BPE: a merge for each way to
/// make a piece of two, the best score first), and its normalization as steps. `before` and `after` are the ids of its
/// template. Two differences: the spelling of a control token (Unigram: also of a byte token) in a text is read as the
/// token there, and where a normalization rule meets combining marks, tokenizer.json uses whole characters. Input error
/// for what tokenizer.json cannot express.
/// `added`: tokens that are matched in a text besides the model's own.
std::string tokenizer_json_of_sentencepiece(const SentencePieceModelFile& model, const std::vector<int32_t>& before,
                                            const std::vector<int32_t>& after, std::span<const AddedToken> added = {});

}  // namespace ashlar::data
