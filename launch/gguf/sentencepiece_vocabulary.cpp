#include "launch/gguf/sentencepiece_vocabulary.h"

#include <algorithm>

#include "core/base/strings.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "launch/gguf/vocabulary.h"

namespace ashlar::gguf {

namespace {

using data::SentencePieceModelFile;
using Type = SentencePieceModelFile::Type;

std::optional<SentencePieceModelFile> model_of(const data::Tokenizer& tokenizer) {
  for (const data::TokenizerFile& file : tokenizer.files())
    if (file.name.ends_with(".model")) return data::parse_sentencepiece_model(file.bytes);
  return std::nullopt;
}

void require_expressible(const SentencePieceModelFile& model, const data::Tokenizer& tokenizer) {
  if (model.unigram) throw not_expressible("is a SentencePiece model of the type Unigram");
  if (!model.charsmap.empty()) throw not_expressible("normalizes its text");
  if (model.remove_extra_spaces) throw not_expressible("removes repeated spaces");
  if (model.space_as_suffix || !model.escape_spaces) throw not_expressible("marks spaces in another way than Llama's");
  if (!model.byte_fallback) throw not_expressible("has no tokens for bytes");
  if (std::ssize(model.pieces) != tokenizer.vocab_size())
    throw not_expressible("has added tokens beside its SentencePiece model");
  // After such a token llama.cpp adds a space to the text that follows, the library does not.
  const auto defined = std::ranges::find(model.pieces, Type::kUserDefined, &SentencePieceModelFile::Piece::type);
  if (model.dummy_prefix && defined != model.pieces.end())
    throw not_expressible(str_cat("has the user-defined token ", defined->text, " and adds a space before a text"));
}

}  // namespace

std::optional<std::vector<Entry>> sentencepiece_vocabulary(const data::Tokenizer& tokenizer, int64_t vocab_size) {
  const std::optional<SentencePieceModelFile> model = model_of(tokenizer);
  if (!model) return std::nullopt;
  require_expressible(*model, tokenizer);
  constexpr float kScoreOfUnused = -1000;
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> kinds;  // the format has the library's numbers
  int64_t unknown = 0;
  for (const SentencePieceModelFile::Piece& piece : model->pieces) {
    if (piece.type == Type::kUnknown) unknown = std::ssize(texts);
    texts.push_back(piece.text);
    scores.push_back(piece.score);
    kinds.push_back(static_cast<int32_t>(piece.type));
  }
  if (std::ssize(texts) > vocab_size) throw too_many_tokens(std::ssize(texts) - 1, vocab_size);
  for (int64_t id = std::ssize(texts); id < vocab_size; ++id) {
    texts.push_back(str_cat("[PAD", id, "]"));
    scores.push_back(kScoreOfUnused);
    kinds.push_back(static_cast<int32_t>(Type::kUnused));
  }
  return std::vector<Entry>{{"tokenizer.ggml.model", std::string("llama")},
                            {"tokenizer.ggml.pre", std::string("default")},
                            {"tokenizer.ggml.tokens", std::move(texts)},
                            {"tokenizer.ggml.scores", std::move(scores)},
                            {"tokenizer.ggml.token_type", std::move(kinds)},
                            {"tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown)},
                            {"tokenizer.ggml.add_space_prefix", model->dummy_prefix},
                            {"tokenizer.ggml.remove_extra_whitespaces", false}};
}

}  // namespace ashlar::gguf
