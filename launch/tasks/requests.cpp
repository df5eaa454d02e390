#include "launch/tasks/requests.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "launch/tasks/python_text.h"

namespace ashlar::tasks {

std::vector<int32_t> tokens_of(const EncodeRule& rule, const std::string& text, const std::string& place) {
  std::vector<int32_t> ids;
  try {
    rule.with_template ? rule.tokenizer.encode_with_template(text, ids) : rule.tokenizer.encode(text, ids);
  } catch (const data::TextError& error) {
    throw input_error("tasks", place, ": the model's tokenizer ", rule.tokenizer.identity(),
                      " cannot encode the text: ", error.reason,
                      "; a model with another tokenizer is needed for this task");
  }
  return ids;
}

training::ScoreRequest encode(const EncodeRule& rule, const Question& question, const std::string& place) {
  const std::string context(strip_right(question.context));
  const std::string continuation = question.context.substr(context.size()) + question.continuation;
  training::ScoreRequest request;
  size_t before = 1;
  if (question.context.empty()) {
    if (rule.prefix_id < 0)
      throw input_error("tasks", place, ": the context is empty, and the model's tokenizer has neither a begin token ",
                        "nor an end token; choose another task");
    request.tokens = tokens_of(rule, continuation, place);
    request.tokens.insert(request.tokens.begin(), rule.prefix_id);
  } else {
    before = tokens_of(rule, context, place).size();
    request.tokens = tokens_of(rule, context + continuation, place);
    // The context has no token of its own, so nothing predicts the first one.
    if (before == 0)
      throw input_error("tasks", place, ": the context ", printable(question.context),
                        " has no tokens; leave the task out");
  }
  const auto all = std::ssize(request.tokens);
  request.scored = all - static_cast<int64_t>(std::min(before, request.tokens.size()));
  if (request.scored == 0)
    throw input_error("tasks", place, ": the continuation ", printable(question.continuation),
                      " adds no token to its context; leave the task out");
  if (request.scored > rule.max_length)
    throw input_error("tasks", place, ": the continuation has ", request.scored, " tokens, expected at most ",
                      rule.max_length, ", the longest sequence of the model; raise --sequence-length, or leave the ",
                      "task out");
  if (const int64_t excess = all - (rule.max_length + 1); excess > 0)
    request.tokens.erase(request.tokens.begin(), request.tokens.begin() + excess);
  return request;
}

}  // namespace ashlar::tasks
