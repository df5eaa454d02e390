// CORE: Python's random numbers, the files of the bundle, nanochat's prompts and scored tokens, and the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "core/io/json.h"
#include "launch/tasks/core_texts.h"
#include "launch/tasks/evaluation.h"
#include "launch/tasks/fetch.h"
#include "launch/tasks/python_random.h"
#include "launch/tasks/yaml_list.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBundle = ASHLAR_SOURCE_DIR "/tests/launch/golden/core";

// Expected values from Python 3.11.
TEST(PythonRandom, DrawsPythonsNumbers) {
  tasks::PythonRandom below(1337);
  std::vector<uint32_t> drawn;
  for (const uint32_t n : {1U, 2U, 3U, 10U, 1000U, 65536U, 10042U, 1U << 31U}) drawn.push_back(below.below(n));
  EXPECT_THAT(drawn, ElementsAre(0, 0, 1, 6, 650, 47165, 5040, 1681700205));
  EXPECT_THAT(tasks::PythonRandom(1337).shuffled(10), ElementsAre(0, 3, 7, 2, 1, 6, 4, 5, 8, 9));
  const std::vector<size_t> thousand = tasks::PythonRandom(1337).shuffled(1000);
  EXPECT_THAT(std::vector<size_t>(thousand.end() - 3, thousand.end()), ElementsAre(546, 947, 632));
  EXPECT_TRUE(tasks::PythonRandom(1337).shuffled(0).empty());
}

// Python takes a sample from a list or from a set: of 10 numbers from 85 on, of 5 from 22 on, it is the set.
TEST(PythonRandom, SamplesAsPython) {
  const auto sample = [](uint32_t seed, size_t n, size_t count) { return tasks::PythonRandom(seed).sample(n, count); };
  EXPECT_THAT(sample(1234, 13, 10), ElementsAre(12, 7, 1, 0, 10, 9, 5, 6, 11, 4));
  EXPECT_THAT(sample(1235, 85, 10), ElementsAre(54, 68, 75, 60, 50, 19, 44, 55, 27, 12));
  EXPECT_THAT(sample(1235, 86, 10), ElementsAre(54, 68, 75, 60, 50, 19, 44, 82, 55, 27));
  EXPECT_THAT(sample(21554, 20320, 10), ElementsAre(13501, 1764, 17313, 7255, 3669, 7838, 4606, 18487, 11503, 8622));
  EXPECT_THAT(sample(0, 21, 5), ElementsAre(12, 13, 1, 8, 16));
  EXPECT_THAT(sample(4294967295, 3, 3), ElementsAre(2, 0, 1));
}

class YamlList : public ::testing::Test {
 protected:
  std::vector<tasks::Record> read(const std::string& text) {
    std::ofstream(scratch_.path() / "list.yaml") << text;
    return tasks::read_yaml_list(scratch_.path() / "list.yaml", "key");
  }
  void refused(const std::string& text, const std::string& what) {
    try {
      read(text);
      ADD_FAILURE() << "expected an error for:\n" << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what)) << text;
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    }
  }
  ScratchDir scratch_;
};

TEST_F(YamlList, ReadsTextsAndListsOfTexts) {
  const auto records = read(
      "---\nother: {a: 1}\nnested:\n  - x\n# a comment\nkey: # here\n-\n  a: plain text # no\n  b: \"q#\\n\\t\\\"\" # "
      "yes\n  c: [10, x]\n  d: 'it'\n\n- a: c#d: e\n  deep:\n    more: 1\n  list:\n  - 1\n  long: text\n    goes on\n"
      "  last: []\nafter: 1\n- ignored\n");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(*records[0].value, io::parse_json(R"({"a": "plain text", "b": "q#\n\t\"", "c": ["10", "x"], "d": "it"})"));
  EXPECT_EQ(*records[1].value,
            io::parse_json(R"({"a": "c#d: e", "deep": null, "list": null, "long": null, "last": []})"));
  EXPECT_THAT(records[1].place, HasSubstr("line 13"));
  EXPECT_TRUE(read("key:\n").empty());
}

TEST_F(YamlList, OtherFormsAreErrorsThatNameTheLine) {
  refused("other: 1\n", "it has no key key");
  refused("key:\n-\n  a: 1\n  a: 2\n", "line 4: expected a once");
  refused("key:\n-\n  a: 1\n   \n b: 2\n", "line 5: expected the indentation of the names before");
  refused("key:\n  a: 1\n", "line 2: expected an entry that begins with -");
  refused("key:\n-\n\ta: 1\n", "line 3: expected an indentation of spaces");
  refused("key:\n-\n  a: \"x\n", "line 3: expected a text with a closing quote");
  refused("key:\n-\n  a: \"\\u0041\"\n", "line 3: expected no escape but");
  refused("key:\n-\n  a: 'it''s'\n", "line 3: expected no doubled quote");
  refused("key:\n-\n  a: [1,\n", "line 3: expected a list in brackets");
  refused("key:\n-\n  a\n", "line 3: expected NAME: VALUE");
  refused("key: tasks.yaml\n", "line 1: expected a list on the lines after key");
  refused("key:\nkey:\n", "line 2: expected key once");
}

// The bundle in golden/core has the odd cases: choices that begin other choices, equal prompts, empty contexts,
// white space at the ends, bytes that characters share, and tasks that read one file. The prompts and the numbers of
// scored tokens are those of nanochat's functions (92d63d4) with bytes as tokens.
TEST(Core, PromptsAndScoredTokensAreNanochats) {
  std::map<std::string, std::vector<nlohmann::json>> expected;
  std::ifstream golden(str_cat(kBundle, "/prompts.jsonl"));
  for (std::string line; std::getline(golden, line);) {
    nlohmann::json row = io::parse_json(line);
    expected[row["task"]].push_back(row);
  }
  const auto tokenizer = data::corpus_scans("bytes").make()->finish();
  const tasks::EncodeRule rule{.tokenizer = *tokenizer, .max_length = 4096, .prefix_id = 256};
  const std::vector<tasks::CoreTask> core = tasks::read_core_tasks(kBundle);
  ASSERT_EQ(core.size(), 6U);
  for (const tasks::CoreTask& task : core) {
    const std::vector<nlohmann::json>& rows = expected[task.label];
    const tasks::CoreTexts texts = tasks::core_texts(task, rule, 0);
    ASSERT_EQ(texts.documents.size(), rows.size()) << task.label;
    size_t next = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(texts.documents[i].gold, rows[i]["gold"]) << task.label << i;
      EXPECT_EQ(nlohmann::json(texts.documents[i].lengths), rows[i]["scored"]) << task.label << i;
      ASSERT_EQ(texts.documents[i].choices.size(), texts.documents[i].lengths.size());
      nlohmann::json prompts = rows[i]["prompts"];
      if (task.kind == tasks::CoreKind::kLanguageModeling) prompts.erase(0);  // that without the continuation
      for (size_t c = 0; c < prompts.size(); ++c, ++next) {
        const training::ScoreRequest& request = texts.requests.at(next);
        EXPECT_EQ(request.tokens.front(), 256);
        EXPECT_EQ(std::string(request.tokens.begin() + 1, request.tokens.end()), prompts[c]) << task.label << i;
        EXPECT_EQ(request.scored, texts.documents[i].lengths[c]);
      }
    }
    EXPECT_EQ(texts.requests.size(), next);
  }
}

TEST(Core, BundleSaysKindExamplesDelimiterAndBaseline) {
  const std::vector<tasks::CoreTask> core = tasks::read_core_tasks(kBundle);
  EXPECT_EQ(core[0].delimiter, " ");
  EXPECT_EQ(core[1].delimiter, "\nAnswer: ");
  EXPECT_EQ(core[3].kind, tasks::CoreKind::kSchema);
  EXPECT_EQ(core[5].shots, 10);
  EXPECT_NEAR(core[0].baseline, 0.333, 1e-12);
  EXPECT_EQ(tasks::read_core_records(kBundle).size(), 36U);
}

// A tokenizer may join the end of the context and the continuation: all tokens after the common ones are scored.
TEST(Core, ScoredTokensAreWhatIsNotInCommon) {
  using tasks::CoreKind;
  auto requests = tasks::core_requests(CoreKind::kLanguageModeling, {{0, 1, 2}, {0, 1, 7, 8}});
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].scored, 2);
  requests = tasks::core_requests(CoreKind::kMultipleChoice, {{0, 1, 2}, {0, 1, 2, 3}});
  EXPECT_EQ(requests[0].scored, 0);
  EXPECT_EQ(requests[1].scored, 1);
  requests = tasks::core_requests(CoreKind::kSchema, {{0, 1, 2, 9, 9}, {0, 3, 9, 9}});
  EXPECT_EQ(requests[0].scored, 2);
  EXPECT_EQ(requests[1].scored, 2);
}

TEST(Core, LongTextsLoseTheirBeginning) {
  const auto tokenizer = data::corpus_scans("bytes").make()->finish();
  const tasks::CoreTask facts = tasks::read_core_tasks(kBundle)[4];
  const auto texts = [&](int64_t length) {
    return tasks::core_texts(facts, {.tokenizer = *tokenizer, .max_length = length, .prefix_id = 256}, 0);
  };
  EXPECT_TRUE(texts(4096).notes.empty());
  const tasks::CoreTexts cut = texts(16);
  EXPECT_THAT(cut.notes, ElementsAre("core/facts: 3 of 5 texts are longer than 16 tokens and lose their beginning"));
  const tasks::CoreTexts whole = texts(4096);
  for (size_t i = 0; i < cut.requests.size(); ++i) {
    const std::vector<int32_t>&tokens = cut.requests[i].tokens, &all = whole.requests.at(i).tokens;
    EXPECT_LE(tokens.size(), 16U);
    EXPECT_TRUE(std::equal(tokens.rbegin(), tokens.rend(), all.rbegin())) << i;
  }
  EXPECT_THROW(texts(15), Error) << "' blue, they say' and the token before it do not fit";
}

TEST(Core, TheLargestMeanWinsAndCoreIsTheMeanOfCentered) {
  // A first choice without tokens is taken, a later one never: Python's min() with a value that is not a number.
  const std::vector<tasks::Document> documents = {{.choices = {{}, {}}, .lengths = {2, 10}, .gold = 1},
                                                  {.choices = {{}, {}}, .lengths = {0, 3}, .gold = 0},
                                                  {.choices = {{}, {}}, .lengths = {3, 0}, .gold = 0}};
  const std::vector<training::SequenceScore> scores = {{-2}, {-5}, {0}, {-3}, {-9}, {0}};
  const auto metrics = tasks::metrics_of(tasks::Metric::kMeanChoice, documents, scores);
  ASSERT_EQ(metrics.size(), 1U);
  EXPECT_EQ(metrics[0].value, 1);
  const auto greedy = tasks::metrics_of(tasks::Metric::kGreedy, std::vector<tasks::Document>(2, {.choices = {{}}}),
                                        std::vector<training::SequenceScore>{{-1, true}, {-1, false}});
  ASSERT_EQ(greedy.size(), 1U);
  EXPECT_NEAR(greedy[0].value, 0.5, 1e-12);
  const training::TaskScore core =
      tasks::core_score(std::vector<training::TaskScore>{{"core/a", 3, {{"acc", 0.7, 0.1}, {"centered", 0.5, 0.3}}},
                                                         {"core/b", 2, {{"acc", 0, 0}, {"centered", -0.2, 0.4}}}});
  EXPECT_EQ(core.records, 5);
  EXPECT_NEAR(core.metrics[0].value, 0.15, 1e-12);
  EXPECT_NEAR(core.metrics[0].error, 0.25, 1e-12);
}

// The archive has the folder eval_bundle, so it is unpacked beside the folders of other tasks.
TEST(Core, FetchedArchiveIsUnpackedAndRead) {
  const ScratchDir scratch;
  std::vector<std::string> told;
  const auto unpacks = [&](const std::vector<std::string>& words) {
    if (words[0] == "unzip")
      fs::copy(str_cat(kBundle, "/eval_bundle"), fs::path(words.back()) / "eval_bundle", fs::copy_options::recursive);
    return 0;
  };
  tasks::fetch(tasks::task_named("test", "core"), scratch.path() / "data", unpacks,
               [&](const std::string& line) { told.push_back(line); });
  ASSERT_EQ(told.size(), 3U);
  EXPECT_THAT(told[2], HasSubstr("36 records in"));
  EXPECT_EQ(tasks::read_core_tasks(scratch.path() / "data").size(), 6U);
}

class CoreRuns : public ::testing::Test {
 protected:
  CoreRuns() {
    fs::create_directories(run_.dir() / "task-data");
    fs::copy(str_cat(kBundle, "/eval_bundle"), run_.dir() / "task-data/eval_bundle", fs::copy_options::recursive);
    must("train tiny.toml run.dtype=fp64 train.steps=3 schedule.warmup_steps=1");
  }
  ShellResult must(const std::string& words) const {
    ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r;
  }
  RunFixture run_;
};

TEST_F(CoreRuns, EqualOnTwoRanks) {
  const std::string words = "eval run --tasks core --sequence-length 64 --json --samples s.jsonl";
  const nlohmann::json out = io::parse_json(must(words).out);
  std::map<std::string, double> right, count;
  std::istringstream lines(run_.read("s.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = io::parse_json(line);
    const std::string task = row["task"];
    size_t best = 0;
    const auto mean = [&](size_t i) { return row["log_prob"][i].get<double>() / row["scored"][i].get<double>(); };
    for (size_t i = 1; i < row["scored"].size(); ++i)
      if (mean(i) > mean(best)) best = i;
    ++count[task];
    if (row["scored"].size() == 1 ? row["greedy"][0].get<bool>() : best == row["gold"]) ++right[task];
  }
  ASSERT_EQ(count.size(), 6U);
  double sum = 0;
  const std::map<std::string, double> guess = {{"core/choices_zeroshot", 0.333},
                                               {"core/choices", 0.25},
                                               {"core/beginnings", 0.5},
                                               {"core/schema", 0.5},
                                               {"core/facts", 0},
                                               {"core/sums", 0}};
  for (const auto& [task, n] : count) {
    const double acc = right[task] / n, centered = (acc - guess.at(task)) / (1 - guess.at(task));
    EXPECT_NEAR(out["tasks"][task]["acc"]["value"].get<double>(), acc, 1e-12) << task;
    EXPECT_NEAR(out["tasks"][task]["centered"]["value"].get<double>(), centered, 1e-12) << task;
    sum += centered;
  }
  EXPECT_NEAR(out["tasks"]["core"]["core"]["value"].get<double>(), sum / 6, 1e-12);
  EXPECT_EQ(out["tasks"]["core"]["records"], 36);
  const nlohmann::json two = io::parse_json(must(str_cat("launch -np 2 ", words)).out);
  EXPECT_EQ(two["tasks"], out["tasks"]);
}

TEST_F(CoreRuns, BadInputIsOneLine) {
  const auto refused = [&](const std::string& words, int code, const std::string& what) {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, code) << words << r.out << r.err;
    EXPECT_THAT(r.err, HasSubstr(what)) << words;
  };
  const std::string eval = "eval run --tasks core --sequence-length 64";
  const fs::path bundle = run_.dir() / "task-data/eval_bundle";
  const std::string yaml = run_.read("task-data/eval_bundle/core.yaml");
  const auto with = [&](const std::string& from, const std::string& to, int code, const std::string& what) {
    std::string changed = yaml;
    changed.replace(changed.find(from), from.size(), to);
    run_.write("task-data/eval_bundle/core.yaml", changed);
    refused(eval, code, what);
    run_.write("task-data/eval_bundle/core.yaml", yaml);
  };
  refused(str_cat(eval, " --shots 2"), kInput, "core has its own numbers of examples (core.yaml)");
  refused(str_cat(eval, " --add-bos-token"), kInput, "core has a begin token before each text");
  refused(str_cat(eval, " --limit 2"), kInput,
          "core/choices takes 2 of the other records as examples: expected at least 3");
  refused(str_cat(eval, " --task-data none"), kInput, "ashlar data fetch core");
  with("type: schema", "type: generation", kDamaged, "line 18: icl_task_type: expected multiple_choice, schema or");
  with("[2]", "[2, 3]", kDamaged, "line 7: num_fewshot: expected one number");
  with("label: facts", "label: unknown", kDamaged, "line 23: the task 'unknown' has no row in");
  with("label: facts", "label: schema", kDamaged, "the task 'schema' is given twice");
  with("  label: facts\n", "", kDamaged, "line 23: it has no field label");
  with("facts.jsonl", "other.jsonl", kInput, "which is not there; the bundle is incomplete");
  run_.write("task-data/eval_bundle/eval_data/language_understanding/schema.jsonl",
             "{\"context_options\": [\"a\", \"b\"], \"continuation\": \"c\", \"gold\": 0}\n"
             "{\"context_options\": [\"a\", \"b\"], \"continuation\": \"c\", \"gold\": 2}\n"
             "{\"context_options\": [\"a\", \"b\"], \"continuation\": \"c\", \"gold\": 1}\n");
  refused(eval, kDamaged, "schema.jsonl', line 2: gold 2: expected 0 to 1");
  run_.write("task-data/eval_bundle/eval_data/language_understanding/choices.jsonl",
             "{\"query\": \"a\", \"gold\": 0}\n");
  refused(eval, kDamaged, "choices.jsonl', line 1: it has no field choices");
  fs::remove(bundle / "eval_meta_data.csv");
  refused(eval, kInput, "core needs 'task-data/eval_bundle/eval_meta_data.csv'");
}

}  // namespace
}  // namespace ashlar::testing
