#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/build/bad_lines.h"
#include "data/sources/source_list.h"

namespace ashlar::data {

/// kBytesBpe: byte-level BPE with GPT-2's splitting pattern, written as tokenizer.json. kSentencePieceBpe and
/// kSentencePieceUnigram: BPE and Unigram models of the SentencePiece library, with byte fallback and without
/// normalization, written as tokenizer.model.
enum class TokenizerKind : uint8_t { kBytesBpe, kSentencePieceBpe, kSentencePieceUnigram };

struct TokenizerTraining {
  TokenizerKind kind = TokenizerKind::kBytesBpe;
  std::vector<std::string> inputs;  ///< as in BuildOptions
  SourceFormat format = SourceFormat::kAuto;
  std::string text_field = "text";
  bool skip_binary = false;
  bool include_hidden = false;
  BadLines bad_lines = BadLines::kStop;
  std::string out;  ///< folder, created if needed
  int64_t vocab_size = 32'000;
  int64_t min_frequency = 2;  ///< kBytesBpe: pairs that occur less often are not merged
  std::vector<std::string> special_tokens = {
      "<|endoftext|>"};           ///< kBytesBpe; the first token is the end-of-document token
  int64_t sentences = 1'000'000;  ///< SentencePiece: maximum number of lines, sampled at random from the corpus
  int threads = 0;                ///< 0 = one per core
  bool overwrite = false;         ///< replace a tokenizer in `out`
  int64_t block_bytes = int64_t{2} << 20;
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress;
};

struct TrainedTokenizer {
  std::vector<std::string> files;  ///< paths of the written files
  int64_t vocab_size = 0;          ///< number of tokens; less than requested when the text has no more pairs to merge
  int64_t text_bytes = 0;
  int64_t words = 0;                                        ///< kBytesBpe: number of distinct words
  int64_t hidden_files = 0, bad_lines = 0, bad_places = 0;  ///< as in BuildReport and Manifest
};

/// Trains a tokenizer on a corpus and writes it to a folder. The same corpus and options give the same bytes on any
/// number of threads (SentencePiece: with the same library version). Byte-level BPE keeps the distinct words of the
/// corpus in memory, not the corpus. Throws the input errors of build_dataset. Also throws an input error when the
/// folder already has a tokenizer, and when the vocabulary size is too small, or too large for the SentencePiece
/// library.
TrainedTokenizer train_tokenizer(const TokenizerTraining& training);

}  // namespace ashlar::data
