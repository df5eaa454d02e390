#include "launch/tasks/core_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/python_random.h"
#include "launch/tasks/python_text.h"

namespace ashlar::tasks {

namespace {

constexpr uint32_t kShuffleSeed = 1337, kExampleSeed = 1234;

std::vector<std::string> texts_at(const Record& record, std::string_view name) {
  const nlohmann::json& list = value_at(record, {name});
  if (!list.is_array() || list.empty())
    throw bad_record(record, str_cat("field ", name, ": expected a list of texts, got ", printable(list.dump())));
  std::vector<std::string> texts;
  for (size_t i = 0; i < list.size(); ++i) texts.push_back(text_at(record, {name, std::to_string(i)}));
  return texts;
}

/// A record with its contexts and continuations: as many of one as there are choices, and one of the other.
struct Parts {
  std::vector<std::string> contexts, continuations;
  size_t gold = 0;

  size_t choices() const { return std::max(contexts.size(), continuations.size()); }
  const std::string& context(size_t choice) const { return contexts[contexts.size() == 1 ? 0 : choice]; }
  const std::string& continuation(size_t choice) const { return continuations[continuations.size() == 1 ? 0 : choice]; }
};

Parts parts_of(CoreKind kind, const Record& record) {
  Parts parts;
  switch (kind) {
    case CoreKind::kMultipleChoice:
      parts.contexts = {text_at(record, {"query"})};
      parts.continuations = texts_at(record, "choices");
      break;
    case CoreKind::kSchema:
      parts.contexts = texts_at(record, "context_options");
      parts.continuations = {text_at(record, {"continuation"})};
      break;
    case CoreKind::kLanguageModeling:
      parts.contexts = {std::string(strip(text_at(record, {"context"})))};
      parts.continuations = {text_at(record, {"continuation"})};
      return parts;
  }
  const int64_t gold = integer_at(record, {"gold"});
  if (gold < 0 || gold >= static_cast<int64_t>(parts.choices()))
    throw bad_record(record, str_cat("gold ", gold, ": expected 0 to ", parts.choices() - 1));
  parts.gold = static_cast<size_t>(gold);
  return parts;
}

std::string joined(const Parts& parts, size_t choice, const std::string& delimiter) {
  return parts.context(choice) + delimiter + parts.continuation(choice);
}

/// Returns the number of tokens that all prompts begin with in common, or with `at_end` end with.
int64_t common_tokens(std::span<const std::vector<int32_t>> prompts, bool at_end) {
  size_t common = prompts[0].size();
  for (const std::vector<int32_t>& prompt : prompts) {
    const auto same =
        at_end ? std::ranges::mismatch(prompts[0].rbegin(), prompts[0].rend(), prompt.rbegin(), prompt.rend()).in2 -
                     prompt.rbegin()
               : std::ranges::mismatch(prompts[0], prompt).in2 - prompt.begin();
    common = std::min(common, static_cast<size_t>(same));
  }
  return static_cast<int64_t>(common);
}

/// Returns the examples of record i of `records`.
std::vector<Record> examples_of(std::span<const Record> records, size_t i, int64_t shots) {
  PythonRandom random(kExampleSeed + static_cast<uint32_t>(i));
  std::vector<Record> examples;
  // Drawn from the list of records without this one.
  for (const size_t drawn : random.sample(records.size() - 1, static_cast<size_t>(shots)))
    examples.push_back(records[drawn < i ? drawn : drawn + 1]);
  return examples;
}

std::vector<Record> records_of(const CoreTask& task, int64_t limit) {
  const std::vector<Record> in_file = read_json_lines(task.file);
  std::vector<Record> records;
  for (const size_t i : PythonRandom(kShuffleSeed).shuffled(in_file.size())) records.push_back(in_file[i]);
  if (limit > 0 && limit < std::ssize(records)) records.resize(static_cast<size_t>(limit));
  if (const int64_t least = task.shots + 1; std::ssize(records) < least)
    throw input_error("tasks", kCoreName, "/", task.label, " takes ", task.shots,
                      " of the other records as examples: expected at least ", least, " records, got ", records.size(),
                      std::ssize(in_file) < least ? str_cat(" in ", printable(task.file.string()), "; get it again")
                                                  : std::string("; raise --limit"));
  return records;
}

/// Encodes the records of a task one by one and counts what is unusual.
class CoreEncoder {
 public:
  CoreEncoder(const CoreTask& task, const EncodeRule& rule) : task_(task), rule_(rule) { rule_.with_template = false; }

  void add(const Record& record, std::span<const Record> examples, CoreTexts& texts) {
    std::vector<std::vector<int32_t>> prompts;
    for (const std::string& prompt : core_prompts(task_, record, examples)) {
      prompts.push_back(tokens_of(rule_, prompt, record.place));
      prompts.back().insert(prompts.back().begin(), rule_.prefix_id);
    }
    const bool one = task_.kind == CoreKind::kLanguageModeling;
    if (one && common_tokens(prompts, false) < std::ssize(prompts[0])) ++merged_;
    Document document;
    if (!one) document.gold = static_cast<int64_t>(parts_of(task_.kind, record).gold);
    for (training::ScoreRequest& request : core_requests(task_.kind, std::move(prompts))) {
      crop(request, record.place);
      if (request.scored == 0 && one)
        throw input_error("tasks", record.place, ": the continuation adds no token to its context; get the ",
                          "bundle again (ashlar data fetch core), or leave core out for this tokenizer");
      empty_ += request.scored == 0 ? 1 : 0;
      document.lengths.push_back(request.scored);
      texts.requests.push_back(std::move(request));
    }
    document.choices.resize(document.lengths.size());
    texts.documents.push_back(std::move(document));
  }

  std::vector<std::string> notes(size_t texts) const {
    const auto name = str_cat(kCoreName, "/", task_.label);
    std::vector<std::string> notes;
    if (cropped_ > 0)
      notes.push_back(str_cat(name, ": ", cropped_, " of ", texts, " texts are longer than ", rule_.max_length,
                              " tokens and lose their beginning"));
    if (empty_ > 0)
      notes.push_back(str_cat(name, ": ", empty_, " of ", texts, " choices have no token of their own; such a first ",
                              "choice is taken, others never"));
    if (merged_ > 0)
      notes.push_back(str_cat(name, ": in ", merged_, " of ", texts, " texts the tokenizer joins context and ",
                              "continuation; all tokens after those of the context are scored"));
    return notes;
  }

 private:
  void crop(training::ScoreRequest& request, const std::string& place) {
    const int64_t excess = std::ssize(request.tokens) - rule_.max_length;
    if (excess <= 0) return;
    ++cropped_;
    if (request.scored >= rule_.max_length)
      throw input_error("tasks", place, ": ", request.scored, " tokens are scored, expected fewer than ",
                        rule_.max_length,
                        ", the longest sequence of the model; raise --sequence-length, or leave core out");
    request.tokens.erase(request.tokens.begin(), request.tokens.begin() + excess);
  }

  const CoreTask& task_;
  EncodeRule rule_;
  int64_t cropped_ = 0, empty_ = 0, merged_ = 0;
};

}  // namespace

std::vector<std::string> core_prompts(const CoreTask& task, const Record& record, std::span<const Record> examples) {
  std::string before;
  for (const Record& example : examples) {
    const Parts parts = parts_of(task.kind, example);
    before += joined(parts, parts.gold, task.delimiter) + "\n\n";
  }
  const Parts parts = parts_of(task.kind, record);
  std::vector<std::string> prompts;
  // The space after the context would belong to the first token of the continuation.
  if (task.kind == CoreKind::kLanguageModeling)
    prompts.emplace_back(strip_right(before + parts.context(0) + task.delimiter));
  for (size_t i = 0; i < parts.choices(); ++i) prompts.push_back(before + joined(parts, i, task.delimiter));
  return prompts;
}

std::vector<training::ScoreRequest> core_requests(CoreKind kind, std::vector<std::vector<int32_t>> prompts) {
  const int64_t common = common_tokens(prompts, kind == CoreKind::kSchema);
  if (kind == CoreKind::kLanguageModeling) prompts.erase(prompts.begin());
  std::vector<training::ScoreRequest> requests;
  for (std::vector<int32_t>& prompt : prompts) {
    const auto all = std::ssize(prompt);
    int64_t scored = kind == CoreKind::kSchema ? common : all - common;
    if (scored == all) scored = 0;  // equal prompts of kSchema: nothing predicts the first token
    requests.push_back({.tokens = std::move(prompt), .scored = scored});
  }
  return requests;
}

CoreTexts core_texts(const CoreTask& task, const EncodeRule& rule, int64_t limit) {
  if (rule.prefix_id < 0)
    throw input_error("tasks", kCoreName, ": each text begins with a begin token, and the model's tokenizer has ",
                      "neither a begin token nor an end token; choose other tasks");
  const std::vector<Record> records = records_of(task, limit);
  CoreTexts texts;
  CoreEncoder encoder(task, rule);
  for (size_t i = 0; i < records.size(); ++i) encoder.add(records[i], examples_of(records, i, task.shots), texts);
  texts.notes = encoder.notes(texts.requests.size());
  return texts;
}

}  // namespace ashlar::tasks
