// Which checkpoints stay beside the newest ones, and how the best one is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

/// A learning rate that is far too high after its warm-up: the best checkpoints are not the newest.
const std::string kWords =
    "train tiny.toml schedule.kind=constant schedule.warmup_steps=1 optimizer.lr=0.5 dropout.resid=0 dropout.attn=0 "
    "checkpoint.every=2 train.eval_every=2 checkpoint.keep=1 ";

std::set<int64_t> steps_in(const RunFixture& run, const std::string& dir) {
  std::set<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(run.dir() / dir / "checkpoints"))
    steps.insert(std::stoll(entry.path().filename().string().substr(5)));
  return steps;
}

/// The validated steps of a run by their loss, the best first.
std::vector<int64_t> ranked(const RunFixture& run, const std::string& dir) {
  std::vector<std::pair<double, int64_t>> losses;
  std::istringstream rows(run.read(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("val_loss")) losses.emplace_back(row.at("val_loss"), row.at("step"));
  }
  std::sort(losses.begin(), losses.end());
  std::vector<int64_t> steps;
  for (const auto& [loss, step] : losses) steps.push_back(step);
  return steps;
}

std::vector<nlohmann::json> events(const RunFixture& run, const std::string& dir, const std::string& event) {
  std::vector<nlohmann::json> found;
  std::istringstream rows(run.read(dir + "/events.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("event") == event) found.push_back(row);
  }
  return found;
}

TEST(BestCheckpoints, TheBestAndTheMultiplesStayBesideTheNewest) {
  const RunFixture run;
  const ShellResult r = run.ashlar(kWords + "train.steps=14 checkpoint.keep_best=2 checkpoint.keep_every=6 run.dir=r");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<int64_t> order = ranked(run, "r");
  ASSERT_EQ(order.size(), 7U);
  std::set<int64_t> expected = {6, 12, 14, order[0], order[1]};
  EXPECT_GE(expected.size(), 4U) << "the best are other checkpoints";
  EXPECT_EQ(steps_in(run, "r"), expected);
  EXPECT_THAT(r.out, HasSubstr("step 2  checkpoint kept as number 1 by val_loss, "));
  EXPECT_THAT(r.out, HasSubstr("best checkpoint: step " + std::to_string(order[0]) + "  val_loss "));
  const auto saves = events(run, "r", "save"), saved = events(run, "r", "saved");
  ASSERT_EQ(saves.size(), 7U);
  ASSERT_EQ(saved.size(), 7U);
  EXPECT_THAT(saved[0].at("best").get<std::vector<int64_t>>(), ElementsAre(2));
  EXPECT_TRUE(saves[0].at("val_loss").is_number());
  EXPECT_THAT(events(run, "r", "end").at(0).at("best").get<std::vector<int64_t>>(), ElementsAre(order[0], order[1]));
}

/// A disk that is full for a while: a checkpoint that could not be saved has no place among the best.
TEST(BestCheckpoints, AreNamedWhenTheyAreComplete) {
  const RunFixture run;
  const std::string full =
      preloading(ASHLAR_STALL_LIBRARY) + " STALL_CALL=write STALL_DO=nospace STALL_PATH=step-00000004";
  const ShellResult r = run.ashlar(
      "train tiny.toml checkpoint.every=2 train.eval_every=2 checkpoint.keep_best=4 train.steps=8 run.dir=r", full);
  ASSERT_EQ(r.code, 0) << r.err;
  ASSERT_THAT(r.out, HasSubstr("a save failed; retrying at the next interval"));
  EXPECT_THAT(r.out, HasSubstr("step 2  checkpoint kept as number 1 by val_loss, "));
  EXPECT_THAT(r.out, Not(HasSubstr("step 4  checkpoint kept")));
  const std::vector<nlohmann::json> saved = events(run, "r", "saved");
  ASSERT_EQ(saved.size(), 3U) << r.out;
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].at("step"), std::vector({2, 6, 8})[i]);
    EXPECT_EQ(saved[i].at("best").size(), i + 1) << "without the checkpoint that failed";
    EXPECT_GT(saved[i].at("bytes"), 0);
  }
  EXPECT_EQ(events(run, "r", "end").at(0).at("best").size(), 3U);
}

/// A run is stopped and resumed twice, once from an older checkpoint: what it knew of its checkpoints stays, and what
/// it repeats is ranked anew.
TEST(BestCheckpoints, AreKnownAfterAResume) {
  const RunFixture run;
  const std::string words = kWords + "checkpoint.keep_best=2 run.dir=r train.steps=";
  ASSERT_EQ(run.ashlar(words + "6").code, 0);
  ASSERT_EQ(run.ashlar(words + "10 optimizer.lr=4").code, 0);  // spoils the weights
  std::filesystem::remove_all(run.dir() / "r/checkpoints/step-00000010");
  ASSERT_EQ(run.ashlar(words + "14 optimizer.lr=4").code, 0);
  std::vector<int64_t> order = ranked(run, "r");
  EXPECT_LE(order[0], 6) << "the first start has the best";
  std::set<int64_t> expected = {14, order[0], order[1]};
  EXPECT_EQ(steps_in(run, "r"), expected);
  const auto file = nlohmann::json::parse(run.read("r/best.json"));
  EXPECT_EQ(file.at("checkpoints").at(0).at("step"), order[0]);

  run.write("r/best.json", "{}");
  const ShellResult damaged = run.ashlar(words + "16 optimizer.lr=4");
  EXPECT_EQ(damaged.code, kDamaged);
  EXPECT_THAT(damaged.err, HasSubstr("the validation losses of the checkpoints, got another content"));
  EXPECT_EQ(steps_in(run, "r"), expected) << "nothing was removed";
}

TEST(BestCheckpoints, AreNamedByThePathOfTheRun) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar(kWords + "train.steps=10 checkpoint.keep_best=1 run.dir=r").code, 0);
  char name[32];
  std::snprintf(name, sizeof(name), "step-%08lld", static_cast<long long>(ranked(run, "r")[0]));
  for (const char* words : {"eval r@best", "launch -np 2 eval r@best"}) {
    const ShellResult eval = run.ashlar(words);
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_THAT(eval.out, HasSubstr(name)) << words;
  }
  EXPECT_EQ(run.ashlar("generate r@best --tokens 2 --prompt so").code, 0);
  const ShellResult from =
      run.ashlar("train tiny.toml run.init_from=r@best run.dir=s train.steps=1 schedule.warmup_steps=1");
  ASSERT_EQ(from.code, 0) << from.err;
  EXPECT_THAT(from.out, HasSubstr(std::string("weights from r/checkpoints/") + name));
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=2 schedule.warmup_steps=1 checkpoint.every=1 run.dir=n").code, 0);
  std::filesystem::remove(run.dir() / "n/best.json");
  const ShellResult none = run.ashlar("eval n@best");
  EXPECT_EQ(none.code, kInput);
  EXPECT_THAT(none.err, HasSubstr("expected in 'n' a checkpoint with a validation loss (best.json), got none"));
}

TEST(BestCheckpoints, StepsThatNeverMeetAreAnError) {
  const RunFixture run;
  for (const char* words :
       {"checkpoint.keep_best=2 train.eval_every=0", "checkpoint.keep_best=2 checkpoint.every=0",
        "checkpoint.keep_best=2 checkpoint.every=7 train.eval_every=11", "checkpoint.keep_every=5 checkpoint.every=3",
        "checkpoint.keep_every=5 checkpoint.every=0"}) {
    const ShellResult r = run.ashlar(std::string("train tiny.toml run.dir=r ") + words);
    EXPECT_EQ(r.code, kInput) << words;
    EXPECT_THAT(r.err, HasSubstr("expected ")) << words;
  }
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "r"));
}

}  // namespace
}  // namespace ashlar::testing
