#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/tasks/core_bundle.h"
#include "launch/tasks/requests.h"
#include "launch/tasks/task.h"

// CORE as nanochat computes it (nanochat/core_eval.py): examples, prompts, scored tokens.
namespace ashlar::tasks {

/// Returns one prompt for each choice, or for kLanguageModeling two: without and with the continuation. Examples stand
/// before the question, solved. Throws bad_record.
std::vector<std::string> core_prompts(const CoreTask& task, const Record& record, std::span<const Record> examples);

/// Returns what is scored of the prompts' tokens: kMultipleChoice: all after the tokens that the prompts begin with in
/// common; kSchema: the tokens that they end with in common; kLanguageModeling: the second prompt's tokens beyond those
/// of the first. A choice that has no such tokens has scored = 0.
std::vector<training::ScoreRequest> core_requests(CoreKind kind, std::vector<std::vector<int32_t>> prompts);

/// A task of CORE, ready to score.
struct CoreTexts {
  std::vector<Document> documents;  ///< choices without texts; lengths: scored tokens
  std::vector<training::ScoreRequest> requests;
  std::vector<std::string> notes;  ///< what differs from the rule for some of them
};

/// Reads the records of a task, shuffled by random.Random(1337), the first `limit` of them (0: all); record i has
/// examples drawn from the others by random.Random(1234 + i). Each prompt begins with rule.prefix_id; one longer than
/// rule.max_length loses its beginning. Throws an input error if there are too few records for the examples, or if the
/// scored tokens do not fit.
CoreTexts core_texts(const CoreTask& task, const EncodeRule& rule, int64_t limit);

}  // namespace ashlar::tasks
