#pragma once

#include <cstdint>

#include "data/read/token_dataset.h"

namespace ashlar::data {

/// Entropies of simple models of the data, in nats per token. The loss of a trained model should be well below that of
/// the bigram.
struct CorpusEntropy {
  /// H = -sum_v p(v) ln p(v), p the frequencies of the validation part itself.
  double unigram = 0;
  /// Mean of -ln p(b|a) over the pairs (a, b) of the validation part. p is of the train part, interpolated after Witten
  /// and Bell: p(b|a) = (c(a,b) + n(a)*q(b)) / (c(a) + n(a)), n(a) the number of distinct successors of a and
  /// q(b) = (c(b) + 1) / (N + V). Source: Chen and Goodman 1998, section 2.5.
  double bigram = 0;
  int64_t validation_tokens = 0;
};

/// Reads both parts once, chunk by chunk; memory is one count per token id and one per distinct pair. Input error when
/// the validation part has fewer than two tokens.
CorpusEntropy corpus_entropy(TokenDataset& dataset);

}  // namespace ashlar::data
