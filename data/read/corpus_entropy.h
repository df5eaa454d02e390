#pragma once

#include <cstdint>

#include "data/read/token_dataset.h"

namespace ashlar::data {

/// Entropies of simple models of the data, in nats per token. The loss of a trained model should be well below the
/// bigram entropy.
struct CorpusEntropy {
  /// -sum_v p(v) ln p(v), where p(v) is the relative frequency of token v in the validation part.
  double unigram = 0;
  /// Mean of -ln p(b|a) over the pairs (a, b) of consecutive tokens of the validation part. The model p is estimated
  /// from the train part with Witten-Bell interpolation: p(b|a) = (c(a,b) + n(a)*q(b)) / (c(a) + n(a)), with q(b) =
  /// (c(b) + 1) / (N + V). Here c are the counts in the train part, n(a) is the number of distinct successors of a, N
  /// the number of tokens of the train part and V the vocabulary size. Source: Chen and Goodman 1998, section 2.5.
  double bigram = 0;
  int64_t validation_tokens = 0;
};

/// Reads both parts once, chunk by chunk. The memory is a few counts per token id and one count per distinct pair of
/// ids (if the vocabulary has at most 1024 ids, one count per possible pair). Throws an input error when the validation
/// part has fewer than two tokens.
CorpusEntropy corpus_entropy(TokenDataset& dataset);

}  // namespace ashlar::data
