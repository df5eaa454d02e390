#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "launch/training/engine.h"

namespace ashlar::inference {

/// A text that a model in training continues.
struct SampleOptions {
  std::string prompt;
  int64_t new_tokens = 0;
  uint64_t seed = 0;
};

/// Returns the ids of a prompt; the end-of-document id for an empty one. Input error if the tokenizer cannot encode it.
std::vector<int32_t> prompt_ids(const data::Tokenizer& tokenizer, const std::string& prompt);

/// (all ranks) Returns the text that the model adds to the prompt, by the defaults of `ashlar generate`; it ends with
/// the document. Any number of replicas, each of which computes the same text. Changes neither weights nor random
/// numbers of the training. Contexts beyond the engine's sequence length lose their older half.
std::string sample_text(training::Engine& engine, const data::Tokenizer& tokenizer, const SampleOptions& options);

}  // namespace ashlar::inference
