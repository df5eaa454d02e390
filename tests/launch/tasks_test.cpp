// Tasks: prompts as lm-evaluation-harness makes them, tokens, batches, metrics, and scores on every mesh.
#include "launch/tasks/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "core/io/json.h"
#include "launch/tasks/evaluation.h"
#include "launch/tasks/fetch.h"
#include "launch/tasks/python_text.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Own records in the published forms, with the contexts and continuations of lm-evaluation-harness 0.4.9.1.
TEST(Tasks, PromptsAreTheHarnesss) {
  std::ifstream golden(ASHLAR_SOURCE_DIR "/tests/launch/golden/task_prompts.jsonl");
  std::map<std::string, int> seen;
  for (std::string line; std::getline(golden, line);) {
    const nlohmann::json row = io::parse_json(line);
    const tasks::Task& task = tasks::task_named("test", row["task"].get<std::string>());
    const tasks::Record record = tasks::make_record(row["record"], line);
    const tasks::Document document = task.document(record);
    const std::string before = task.examples == nullptr ? "" : task.examples("", record, 0);
    ++seen[row["task"]];
    ASSERT_EQ(document.choices.size(), row["choices"].size()) << line;
    for (size_t i = 0; i < document.choices.size(); ++i) {
      EXPECT_EQ(before + document.choices[i].context, row["choices"][i][0]) << line;
      EXPECT_EQ(document.choices[i].continuation, row["choices"][i][1]) << line;
    }
    if (row["target"].is_number()) {
      EXPECT_EQ(document.gold, row["target"]) << line;
    }
  }
  EXPECT_EQ(seen.size(), tasks::all_tasks().size() - 1) << "all but core (core_test.cpp)";
}

TEST(Tasks, HellaSwagsLabelMayBeAText) {
  const tasks::Task& task = tasks::task_named("test", "hellaswag");
  nlohmann::json record = {{"activity_label", "a"}, {"ctx_a", "b"}, {"ctx_b", "c"}, {"endings", {"d", "e", "f", "g"}}};
  record["label"] = "2";
  EXPECT_EQ(task.document(tasks::make_record(record, "line 1")).gold, 2);
  record["label"] = "two";
  EXPECT_THROW(task.document(tasks::make_record(record, "line 1")), Error);
}

TEST(Tasks, TextsArePythons) {
  EXPECT_EQ(tasks::strip("\x1f \xc2\xa0 a b\n\xe2\x80\x83"), "a b");
  EXPECT_EQ(tasks::capitalize("\xc3\xa9T\xc3\x89 of JAN"), "\xc3\x89t\xc3\xa9 of jan");
  EXPECT_EQ(tasks::capitalize(""), "");
  EXPECT_EQ(tasks::length("caf\xc3\xa9"), 4);
  EXPECT_EQ(tasks::replace_all("a    b", "  ", " "), "a  b") << "one pass, as str.replace";
}

training::ScoreRequest encoded(const std::string& context, const std::string& continuation, int64_t max_length) {
  const auto tokenizer = data::corpus_scans("bytes").make()->finish();
  return tasks::encode({.tokenizer = *tokenizer, .max_length = max_length, .prefix_id = 256},
                       {.context = context, .continuation = continuation}, "here");
}

TEST(Tasks, SpaceBeforeAContinuationBelongsToIt) {
  EXPECT_EQ(encoded("ab  ", "c", 64).scored, 3);
  EXPECT_EQ(encoded("ab", " c", 64).scored, 2);
  EXPECT_THAT(encoded("", "ab", 64).tokens, ElementsAre(256, 'a', 'b'));
}

TEST(Tasks, LongTextsLoseTheirBeginning) {
  const training::ScoreRequest request = encoded("abcdef", "gh", 4);
  EXPECT_THAT(request.tokens, ElementsAre('d', 'e', 'f', 'g', 'h')) << "the last token is a target only";
  EXPECT_EQ(request.scored, 2);
  EXPECT_THROW(encoded("ab", "cdefg", 4), Error);
  EXPECT_THROW(encoded("ab", "", 4), Error) << "nothing to score";
}

TEST(Tasks, EqualInputsShareARow) {
  const std::vector<training::ScoreRequest> requests = {{.tokens = {1, 2, 3}, .scored = 1},
                                                        {.tokens = {5, 6, 7, 8}, .scored = 2},
                                                        {.tokens = {1, 2, 4}, .scored = 1},
                                                        {.tokens = {1, 2, 9}, .scored = 2}};
  const auto inputs = training::score_inputs(requests);
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].length, 3);
  EXPECT_THAT(inputs[1].requests, ElementsAre(0, 2, 3));
}

// Each input is in one row of one round, whatever the mesh, and no micro-batch exceeds the limits.
TEST(Tasks, RoundsHoldEachInputOnce) {
  for (const int64_t n : {1, 7, 100})
    for (const int64_t replicas : {1, 3})
      for (const int64_t slots : {1, 5})
        for (const int64_t multiple : {1, 3}) {
          std::vector<training::ScoreInput> inputs;
          for (int64_t i = 0; i < n; ++i) inputs.push_back({.length = n - i, .requests = {}});
          const training::ScoreLimits limits{.tokens = 200,
                                             .rows = 9,
                                             .longest = 104,
                                             .replicas = replicas,
                                             .slots = slots,
                                             .rows_multiple = multiple};
          int64_t next = 0;
          for (const training::ScoreRound& round : training::plan_rounds(inputs, limits)) {
            EXPECT_EQ(round.first, next);
            EXPECT_GE(round.length, inputs[next].length);
            EXPECT_LE(round.length, limits.longest);
            EXPECT_EQ(round.rows * round.length % multiple, 0);
            EXPECT_LE(round.rows, limits.rows + multiple - 1);
            EXPECT_LE((round.rows - multiple) * round.length, limits.tokens);
            EXPECT_LE(round.slots, slots);
            next += round.rows * round.slots * replicas;
          }
          EXPECT_GE(next, n);
        }
}

TEST(Tasks, MetricsOfAHandfulOfScores) {
  const std::vector<tasks::Document> documents = {{.choices = {{}, {}}, .lengths = {2, 10}, .gold = 0},
                                                  {.choices = {{}, {}}, .lengths = {2, 10}, .gold = 1},
                                                  {.choices = {{}, {}}, .lengths = {1, 1}, .gold = 1}};
  const std::vector<training::SequenceScore> scores = {{-2}, {-12}, {-2}, {-3}, {-1}, {-1}};
  const auto metrics = tasks::metrics_of(tasks::Metric::kChoiceNorm, documents, scores);
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_NEAR(metrics[0].value, 1.0 / 3, 1e-12) << "of equal choices the first one is taken";
  EXPECT_NEAR(metrics[0].error, 1.0 / 3, 1e-12) << "sqrt(p (1 - p) / (n - 1))";
  EXPECT_NEAR(metrics[1].value, 2.0 / 3, 1e-12);
  const std::vector<tasks::Document> words(2, {.choices = {{}}});
  const std::vector<training::SequenceScore> of_words = {{.log_prob = -1, .greedy = true},
                                                         {.log_prob = -3, .greedy = false}};
  const auto last = tasks::metrics_of(tasks::Metric::kLastWord, words, of_words);
  EXPECT_NEAR(last[0].value, 0.5, 1e-12);
  EXPECT_NEAR(last[1].value, std::exp(2.0), 1e-12);
}

class TaskRuns : public ::testing::Test {
 protected:
  TaskRuns() {
    fs::create_directories(run_.dir() / "task-data/piqa");
    fs::create_directories(run_.dir() / "task-data/lambada");
    run_.write("task-data/piqa/valid.jsonl",
               "{\"goal\": \"Carry water\", \"sol1\": \"in a pail\", \"sol2\": \"in a sieve, no\"}\n"
               "{\"goal\": \"Light a room\", \"sol1\": \"with a shoe\", \"sol2\": \"with a lamp\"}\n");
    run_.write("task-data/piqa/valid-labels.lst", "0\n1\n");
    run_.write("task-data/lambada/lambada_test.jsonl",
               "{\"text\": \"the cat saw the cat\"}\n{\"text\": \"a stone is a stone\"}\n{\"text\": \"no, no, no\"}\n");
  }
  ShellResult must(const std::string& words) const {
    ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r;
  }
  std::vector<double> samples(const std::string& words) const {
    must(words + " --samples s.jsonl");
    std::vector<double> values;
    std::istringstream lines(run_.read("s.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json row = io::parse_json(line);
      for (const nlohmann::json& value : row["log_prob"]) values.push_back(value);
    }
    return values;
  }
  RunFixture run_;
};

constexpr const char* kTiny = "train tiny.toml run.dtype=fp64 train.steps=3 schedule.warmup_steps=1 ";

TEST_F(TaskRuns, ScoresAreEqualOnEveryMesh) {
  must(str_cat(kTiny, "vocab.pad_to=2"));
  const std::string words = "eval run --tasks piqa,lambada --sequence-length 32";
  const std::vector<double> one = samples(words);
  ASSERT_EQ(one.size(), 7U);
  for (const char* mesh : {"", " --tensor 2", " --pipeline 2", " --batch 1"}) {
    const std::vector<double> two = samples(str_cat("launch -np 2 ", words, mesh));
    ASSERT_EQ(two.size(), one.size()) << mesh;
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-9) << mesh;
  }
}

TEST_F(TaskRuns, EvaluationDoesNotChangeTraining) {
  must(kTiny);
  must(str_cat(kTiny, "run.dir=with train.eval_tasks=[\\\"piqa\\\",\\\"lambada\\\"] train.eval_tasks_every=2"));
  std::vector<std::string> with = run_.exact_metrics("with");
  std::erase_if(with, [](const std::string& row) { return row.find(' ') == std::string::npos; });  // rows of tasks
  EXPECT_EQ(with, run_.exact_metrics("run"));
  std::vector<nlohmann::json> rows;
  std::istringstream lines(run_.read("with/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const nlohmann::json row = io::parse_json(line); row.contains("tasks")) rows.push_back(row);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["step"], 2);
  EXPECT_EQ(rows[1]["step"], 3) << "and the last one";
  EXPECT_EQ(rows[0]["tasks"]["piqa"]["records"], 2);
  EXPECT_TRUE(rows[0]["tasks"]["lambada"].contains("perplexity_stderr"));
  // A run that is complete does not evaluate again.
  must(str_cat(kTiny, "run.dir=with train.eval_tasks=[\\\"piqa\\\",\\\"lambada\\\"] train.eval_tasks_every=2"));
  EXPECT_EQ(run_.metric("with", "tasks_seconds").size(), 2U);
  const nlohmann::json out = io::parse_json(must("eval with --tasks piqa,lambada --json").out);
  EXPECT_EQ(out["tasks"]["piqa"]["acc"]["value"], rows[1]["tasks"]["piqa"]["acc"]);
  EXPECT_NEAR(out["tasks"]["lambada"]["perplexity"]["value"].get<double>(),
              rows[1]["tasks"]["lambada"]["perplexity"].get<double>(), 1e-6);
}

TEST_F(TaskRuns, BadInputIsOneLine) {
  must(kTiny);
  const auto refused = [&](const std::string& words, int code, const std::string& what) {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, code) << words << r.out << r.err;
    EXPECT_THAT(r.err, HasSubstr(what)) << words;
  };
  refused("eval run --tasks pika", kInput, "expected one of arc_challenge");
  refused("eval run --tasks piqa,piqa", kInput, "given twice");
  refused("eval run --tasks hellaswag", kInput, "ashlar data fetch hellaswag");
  refused("eval run --tasks piqa --shots 2", kInput, "--shots 2: piqa");
  refused(str_cat(kTiny, "run.dir=other train.eval_tasks=pika"), kInput, "expected one of arc_challenge");
  EXPECT_FALSE(fs::exists(run_.dir() / "other"));
  refused(str_cat(kTiny, "run.dir=other train.eval_tasks_every=5"), kInput, "train.eval_tasks is given");
  run_.write("task-data/piqa/valid-labels.lst", "0\n2\n");
  refused("eval run --tasks piqa", kDamaged, "valid.jsonl', line 2: label 2: expected 0 to 1");
  run_.write("task-data/lambada/lambada_test.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"the\n");
  refused("eval run --tasks lambada", kDamaged, "lambada_test.jsonl', line 2: ");
}

TEST_F(TaskRuns, AFetchLeavesAllOrNothing) {
  const tasks::Task& task = tasks::task_named("test", "lambada");
  const fs::path data = run_.dir() / "fetched";
  const auto nothing = [](const std::string&) {};
  const auto downloads = [&](int64_t records, int status) {
    return [=](const std::vector<std::string>& words) {
      std::ofstream out(words[words.size() - 2]);
      for (int64_t i = 0; i < records; ++i) out << "{\"text\": \"a b\"}\n";
      return status;
    };
  };
  EXPECT_THROW(tasks::fetch(task, data, downloads(3, 22), nothing), Error);
  EXPECT_THROW(tasks::fetch(task, data, downloads(3, 0), nothing), Error) << "not the published number";
  EXPECT_TRUE(fs::is_empty(data));
  tasks::fetch(task, data, downloads(task.records, 0), nothing);
  EXPECT_TRUE(fs::exists(data / "lambada/lambada_test.jsonl"));
  tasks::fetch(
      task, data, [](const auto&) { return 1; }, nothing);  // present: runs nothing
  const ShellResult list = run_.ashlar("data fetch list --task-data fetched");
  EXPECT_THAT(list.out, HasSubstr("lambada: 5153 records, licence modified MIT of the GPT-2 repository, present"));
}

}  // namespace
}  // namespace ashlar::testing
