#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace ashlar::data {

/// A SentencePiece model as the tokenizer.json of the same ids: its pieces and scores (BPE: a merge for each way to
/// make a piece of two, the best score first), its normalisation as steps of text. `before` and `after` are ids that
/// its template puts around a text. Two things differ: a control token (Unigram: a byte's too) that is spelled in a
/// text is taken for the token there, and where a rule of normalisation meets combining marks, tokenizer.json goes by
/// whole characters as read. Input error for what tokenizer.json has no word for.
/// `added`: tokens that are found in a text beside the model's own.
std::string tokenizer_json_of_sentencepiece(const SentencePieceModelFile& model, const std::vector<int32_t>& before,
                                            const std::vector<int32_t>& after, std::span<const AddedToken> added = {});

}  // namespace ashlar::data
