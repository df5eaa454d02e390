// What a run leaves in its directory beside metrics and checkpoints, over two starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

int event_files(const RunFixture& run, const char* dir) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run.dir() / dir))
    count += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  return count;
}

TEST(RunFiles, TellEveryStart) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 checkpoint.every=4").code, 0);
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=9 checkpoint.every=4 log.tensorboard=false").code, 0);
  std::vector<std::string> events;
  double before = 0;
  std::istringstream lines(run.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    events.push_back(row.at("event").get<std::string>());
    if (row.contains("step")) events.back() += " " + std::to_string(row.at("step").get<int>());
    EXPECT_GE(row.at("time").get<double>(), before);
    before = row.at("time");
    if (events.back() == "resume 6") {
      EXPECT_THAT(row.at("changes").dump(), HasSubstr("train.steps was 6, is 9"));
    }
  }
  EXPECT_THAT(events, ElementsAre("start 0", "save 4", "saved 4", "saved 6", "end 6", "resume 6", "save 8", "saved 8",
                                  "saved 9", "end 9"));
  const std::string log = run.read("run/train.log");
  EXPECT_THAT(log, MatchesRegex("(....-..-..T..:..:..Z [^\n]*\n)+"));
  for (const char* line : {"Z step 1/6 ", "Z step 6/6 ", "Z changed since the checkpoint: train.steps was 6, is 9\n",
                           "Z step 7/9 ", "Z step 9/9 ", "Z initial weights from seed "})
    EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(event_files(run, "run"), 1) << "the second start has none";
  EXPECT_THAT(run.read("run/metrics.jsonl"), HasSubstr(",\"time\":"));
}

TEST(RunFiles, HaveTheErrorThatEndedARun) {
  const RunFixture run;
  // Moments beyond fp32, as in errors_test.cpp.
  const ShellResult r = run.ashlar(
      "train tiny.toml train.steps=3 schedule.warmup_steps=1 checkpoint.every=0 init.scheme=xavier init.std=1e-22 "
      "norm.eps=1e-43 optimizer.clip=0");
  ASSERT_EQ(r.code, kNonFinite) << r.out << r.err;
  const std::string events = run.read("run/events.jsonl");
  const auto last = nlohmann::json::parse(events.substr(events.rfind('\n', events.size() - 2) + 1));
  EXPECT_EQ(last.at("event"), "error");
  EXPECT_EQ(last.at("code"), kNonFinite);
  const auto text = last.at("text").get<std::string>();
  EXPECT_THAT(r.err, HasSubstr(text));
  EXPECT_THAT(run.read("run/train.log"), ::testing::EndsWith("Z error: " + text + "\n"));
}

TEST(RunFiles, NameTheProgramThatWroteThem) {
  const RunFixture run;
  const std::string text = run.ashlar("--version").out;
  EXPECT_THAT(text,
              MatchesRegex("ashlar [0-9.]+ \\(commit ([0-9a-f]{12}(\\+changes)?|unknown); [A-Za-z]+ [0-9.]+[^\n]*\\)\n"
                           "MPI [0-9.]+[^\n]*, HDF5 [0-9.]+, (no )?CUDA kernels[^\n]*\n"));
}

}  // namespace
}  // namespace ashlar::testing
