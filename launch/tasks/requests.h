#pragma once

#include <cstdint>

#include "data/tokenizer/tokenizer.h"
#include "launch/tasks/task.h"
#include "launch/training/sequence_scores.h"

namespace ashlar::tasks {

/// How texts become tokens.
struct EncodeRule {
  const data::Tokenizer& tokenizer;
  int64_t max_length = 0;      ///< tokens that the model can take
  bool with_template = false;  ///< adds the tokenizer's template, e.g. a begin token
  int32_t prefix_id = -1;      ///< the token before a continuation without context
};

/// Returns the tokens of a text, after the template if the rule says so. `place` names the record in errors.
std::vector<int32_t> tokens_of(const EncodeRule& rule, const std::string& text, const std::string& place);

/// Returns the tokens of a question, as lm-evaluation-harness makes them: white space at the end of the context moves
/// to the continuation; context and continuation are encoded together, and those tokens count as continuation that
/// lengthen the encoding of the context; what is longer than max_length + 1 tokens is cut on the left. `place` names
/// the record in errors: an input error if the continuation has no tokens, or more than max_length.
training::ScoreRequest encode(const EncodeRule& rule, const Question& question, const std::string& place);

}  // namespace ashlar::tasks
