#include "launch/tasks/evaluation.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/base/strings.h"
#include "data/digest.h"
#include "launch/tasks/core_texts.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::tasks {

namespace {

/// Returns the mean of the values and the standard error of the mean, from the sample's standard deviation.
training::TaskMetric mean_of(const char* name, std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {.name = name, .value = mean, .error = values.size() < 2 ? 0 : std::sqrt(squares / (n - 1) / n)};
}

training::TaskMetric share(const char* name, const std::vector<bool>& right) {
  return mean_of(name, std::vector<double>(right.begin(), right.end()));
}

/// Returns the index of the first largest value.
int64_t largest(const std::vector<double>& values) { return std::ranges::max_element(values) - values.begin(); }

Document document_of(const Task& task, const EvaluationOptions& options, const Record& record) {
  Document document = task.document(record);
  if (document.gold < 0 || document.gold >= std::ssize(document.choices))
    throw bad_record(record, str_cat("label ", document.gold, ": expected 0 to ", document.choices.size() - 1));
  for (const int64_t characters : document.lengths)
    if (characters == 0) throw bad_record(record, "a choice is empty");
  if (task.examples == nullptr) return document;
  const std::string before = task.examples(options.data, record, options.shots);
  for (Question& choice : document.choices) choice.context = before + choice.context;
  return document;
}

/// Returns a JSON object: the task, the number of the record, and the scores of its choices.
std::string sample_line(std::string_view task, Metric metric, size_t record, const Document& document,
                        std::span<const training::SequenceScore> scores) {
  nlohmann::ordered_json j;
  j["task"] = task;
  j["record"] = record;
  j["gold"] = document.gold;
  if (metric == Metric::kMeanChoice || metric == Metric::kGreedy) j["scored"] = document.lengths;
  for (const training::SequenceScore& score : scores) {
    j["log_prob"].push_back(score.log_prob);
    j["greedy"].push_back(score.greedy);
  }
  return j.dump();
}

}  // namespace

Evaluation::Evaluation(const EvaluationOptions& options, const EncodeRule& rule, const training::ScoreLimits& limits)
    : limits_(limits), samples_(options.samples) {
  std::vector<const Task*> tasks;
  for (const std::string& name : options.names) {
    const Task& task = task_named("tasks", name);
    if (std::ranges::find(tasks, &task) != tasks.end())
      throw input_error("tasks", "task ", name, " is given twice; name it once");
    if (options.shots > 0 && task.document == nullptr)
      throw input_error("tasks", "--shots ", options.shots, ": ", name,
                        " has its own numbers of examples (core.yaml); remove --shots or ", name);
    if (options.shots > 0 && task.examples == nullptr)
      throw input_error("tasks", "--shots ", options.shots, ": ", name,
                        " is scored without examples only, since the harness draws them from training splits; ",
                        "of the tasks, mmlu has a fixed list of examples; remove --shots or ", name);
    tasks.push_back(&task);
  }
  for (const Task* task : tasks) require_files(*task, options.data);
  for (const Task* task : tasks) task->document == nullptr ? load_core(options, rule) : load(*task, options, rule);
}

void Evaluation::load(const Task& task, const EvaluationOptions& options, const EncodeRule& rule) {
  Loaded loaded{.name = std::string(task.name), .metric = task.metric};
  std::vector<Record> records = task.read(options.data);
  if (records.empty())
    throw damaged_error("tasks", task.name, ": its file has no record; fetch it again (ashlar data fetch ", task.name,
                        ")");
  const auto all = std::ssize(records);
  if (options.limit > 0 && options.limit < all) records.resize(static_cast<size_t>(options.limit));
  if (std::ssize(records) != task.records)
    notes_.push_back(str_cat(task.name, ": ", records.size(), " records",
                             std::ssize(records) < all ? str_cat(" of ", all, " (--limit)") : "",
                             "; the published file has ", task.records));
  for (const Record& record : records) {
    loaded.documents.push_back(document_of(task, options, record));
    for (const Question& choice : loaded.documents.back().choices)
      loaded.requests.push_back(encode(rule, choice, record.place));
  }
  add(std::move(loaded));
}

void Evaluation::load_core(const EvaluationOptions& options, const EncodeRule& rule) {
  const std::vector<CoreTask> tasks = read_core_tasks(options.data);
  if (tasks.empty())
    throw damaged_error("tasks", "core: its core.yaml has no task; fetch it again (ashlar data fetch core)");
  if (std::ssize(tasks) != kCoreTasks)
    notes_.push_back(str_cat("core: core.yaml has ", tasks.size(), " tasks; the published one has ", kCoreTasks));
  if (options.limit > 0) notes_.push_back(str_cat("core: at most ", options.limit, " records of each task (--limit)"));
  for (const CoreTask& task : tasks) {
    CoreTexts texts = core_texts(task, rule, options.limit);
    notes_.insert(notes_.end(), texts.notes.begin(), texts.notes.end());
    add({.name = str_cat(kCoreName, "/", task.label),
         .metric = task.kind == CoreKind::kLanguageModeling ? Metric::kGreedy : Metric::kMeanChoice,
         .core_baseline = task.baseline,
         .documents = std::move(texts.documents),
         .requests = std::move(texts.requests)});
  }
}

void Evaluation::add(Loaded loaded) {
  for (const training::ScoreRequest& request : loaded.requests)
    fingerprint_ = data::digest_of(std::as_bytes(std::span(request.tokens)), fingerprint_).low;
  tasks_.push_back(std::move(loaded));
}

int64_t Evaluation::requests() const {
  int64_t n = 0;
  for (const Loaded& loaded : tasks_) n += std::ssize(loaded.requests);
  return n;
}

std::optional<std::vector<training::TaskScore>> Evaluation::run(training::Engine& engine, const Progress& progress) {
  std::vector<training::TaskScore> results, of_core;
  for (const Loaded& loaded : tasks_) {
    const auto scores = training::score_sequences(engine, loaded.requests, limits_,
                                                  [&](int64_t done) { return progress(loaded.name, done); });
    if (!scores) return std::nullopt;
    for (const training::SequenceScore& score : *scores)
      if (std::isnan(score.log_prob))
        throw comm::AllRanksError(
            ExitCode::kNonFinite, "tasks",
            str_cat(loaded.name, ": a log probability is not a number: the logits are not finite in ",
                    name_of(engine.options().dtype), "; use a wider dtype or another checkpoint"));
    results.push_back(score_of(loaded, *scores));
    if (loaded.core_baseline) of_core.push_back(results.back());
  }
  if (!of_core.empty()) results.push_back(core_score(of_core));
  return results;
}

training::TaskScore Evaluation::score_of(const Loaded& loaded, std::span<const training::SequenceScore> scores) const {
  std::span<const training::SequenceScore> rest = scores;
  for (size_t i = 0; samples_ && i < loaded.documents.size(); ++i) {
    const size_t n = loaded.documents[i].choices.size();
    samples_(sample_line(loaded.name, loaded.metric, i, loaded.documents[i], rest.first(n)));
    rest = rest.subspan(n);
  }
  training::TaskScore result{.task = loaded.name,
                             .records = std::ssize(loaded.documents),
                             .metrics = metrics_of(loaded.metric, loaded.documents, scores)};
  if (const auto& guess = loaded.core_baseline) {
    const training::TaskMetric& acc = result.metrics.front();
    result.metrics.push_back(
        {.name = "centered", .value = (acc.value - *guess) / (1 - *guess), .error = acc.error / (1 - *guess)});
  }
  return result;
}

std::vector<training::TaskMetric> metrics_of(Metric metric, std::span<const Document> documents,
                                             std::span<const training::SequenceScore> scores) {
  std::vector<bool> right, right_norm;
  std::vector<double> log_probs;
  for (const Document& document : documents) {
    const auto mine = scores.first(document.choices.size());
    scores = scores.subspan(mine.size());
    std::vector<double> of_choices, norms;
    for (const training::SequenceScore& score : mine) of_choices.push_back(score.log_prob);
    // A choice without tokens has 0 / 0, which is not a number: largest() returns it if it is the first one.
    for (size_t i = 0; i < document.lengths.size(); ++i)
      norms.push_back(of_choices[i] / static_cast<double>(document.lengths[i]));
    log_probs.push_back(of_choices.front());
    right_norm.push_back(largest(norms) == document.gold);
    if (metric == Metric::kLastWord || metric == Metric::kGreedy)
      right.push_back(mine.front().greedy);
    else
      right.push_back(largest(metric == Metric::kMeanChoice ? norms : of_choices) == document.gold);
  }
  std::vector<training::TaskMetric> metrics = {share("acc", right)};
  if (metric == Metric::kChoiceNorm) metrics.push_back(share("acc_norm", right_norm));
  if (metric == Metric::kLastWord) {
    // The error of exp(-mean) is that of the mean times the derivative.
    const training::TaskMetric mean = mean_of("", log_probs);
    const double perplexity = std::exp(-mean.value);
    metrics.push_back({.name = "perplexity", .value = perplexity, .error = perplexity * mean.error});
  }
  return metrics;
}

training::TaskScore core_score(std::span<const training::TaskScore> tasks) {
  training::TaskScore core{.task = kCoreName, .records = 0, .metrics = {{.name = "core"}}};
  const auto n = static_cast<double>(tasks.size());
  double squares = 0;
  for (const training::TaskScore& task : tasks) {
    const training::TaskMetric& centered = task.metrics.back();
    core.records += task.records;
    core.metrics[0].value += centered.value / n;
    squares += centered.error * centered.error;
  }
  core.metrics[0].error = std::sqrt(squares) / n;
  return core;
}

}  // namespace ashlar::tasks
