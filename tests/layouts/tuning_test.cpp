// Choices of algorithms on several ranks: rank 0 measures what any rank asks, and all use it.
#include "launch/training/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tuning/joined_tuners.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;
using training::Tuning;

/// Answers each question with its length, and counts.
struct CountingTuner : PreparingTuner {
  TunedChoices met() const override {
    TunedChoices met{.device = device, .sections = {{"gemm", {.library = library, .choices = {}}}}};
    for (const std::string& question : questions) met.sections["gemm"].choices[question] = "";
    return met;
  }
  TunedChoices measure(const TunedChoices& asked) override {
    TunedChoices answers = asked;
    for (auto& [question, answer] : answers.sections.at("gemm").choices) {
      answer = std::to_string(question.size());
      measured.push_back(question);
    }
    return answers;
  }
  void use(const TunedChoices& choices) override {
    for (const auto& [question, answer] : choices.sections.at("gemm").choices) {
      if (answer == "bad") throw damaged_error("choices", "the library refuses ", question);
    }
    used = choices.sections.at("gemm").choices;
  }

  TunedChoices prepare() override {
    if (fails) throw input_error("demanded", "not to be had");
    return {.device = device, .sections = {{"gemm", {library, refused}}}};
  }
  std::vector<std::string> report() override { return lines; }

  std::string device = "device", library = "library 1";
  std::map<std::string, std::string> refused;
  bool fails = false;
  std::vector<std::string> questions, measured, lines;
  std::map<std::string, std::string> used;
};

class TuningTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return dir_.path() / "choices.json"; }
  std::string own_question() const { return "question of rank " + std::to_string(ranks_.rank()); }
  /// What one part of a run does: takes up, works, completes. Its text.
  std::string part(CountingTuner& tuner, const std::string& saved) {
    answers_seen_ = 0;
    Tuning tuning(tuner, ranks_, log_, file(), [this] { ++answers_seen_; });
    tuning.reuse(saved);
    used_before_work_ = tuner.used;
    tuner.questions = {"question of all", own_question()};
    for (int times = 1; tuning.complete(); ++times) ASHLAR_CHECK(times < 3, "questions of two rounds were answered");
    EXPECT_TRUE(tuning.completed());
    comm::barrier(ranks_);
    return tuning.text();
  }
  std::map<std::string, std::string> expected() const {
    std::map<std::string, std::string> all = {{"question of all", "15"}};
    for (int rank = 0; rank < ranks_.size(); ++rank) all["question of rank " + std::to_string(rank)] = "18";
    return all;
  }

  comm::ControlPlane& ranks_ = bootstrap().control();
  SharedDir dir_{ranks_};
  std::vector<std::string> lines_;
  Log log_{[this](std::string_view line) { lines_.emplace_back(line); }};
  std::map<std::string, std::string> used_before_work_;
  size_t answers_seen_ = 0;
};

TEST_F(TuningTest, TheFirstRankMeasuresForAll) {
  CountingTuner tuner;
  const std::string text = part(tuner, "");
  EXPECT_EQ(tuner.used, expected());
  EXPECT_EQ(tuner.measured.size(), ranks_.rank() == 0 ? expected().size() : 0);
  EXPECT_EQ(answers_seen_, tuner.measured.size()) << "who watches over ranks sees that they get on";
  EXPECT_EQ(choices_from_json(text, "").sections.at("gemm").choices, expected());
  std::ifstream in(file());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
}

TEST_F(TuningTest, WhatWasChosenIsUsedAgainBeforeTheFirstWork) {
  CountingTuner first, second, third;
  const std::string text = part(first, "");
  if (ranks_.rank() == 0) std::filesystem::remove(file());
  comm::barrier(ranks_);
  EXPECT_EQ(part(second, text), text);  // from the checkpoint
  EXPECT_EQ(used_before_work_, expected());
  EXPECT_TRUE(second.measured.empty());
  if (ranks_.rank() == 0) std::ofstream(file()) << text;
  comm::barrier(ranks_);
  EXPECT_EQ(part(third, ""), text);  // from the run's directory
  EXPECT_EQ(used_before_work_, expected());
  EXPECT_TRUE(third.measured.empty());
}

TEST_F(TuningTest, OnlyWhatIsNewIsMeasured) {
  CountingTuner first, second;
  const TunedChoices some{
      .device = "device",
      .sections = {{"gemm", {"library 1", {{"question of all", "kept"}, {"of another mesh", "kept"}}}}}};
  part(first, to_json(some));
  auto all = expected();
  all["question of all"] = all["of another mesh"] = "kept";
  EXPECT_EQ(first.used, all);
  EXPECT_EQ(first.measured.size(), ranks_.rank() == 0 ? static_cast<size_t>(ranks_.size()) : 0);
}

TEST_F(TuningTest, ForAnotherLibraryOrDeviceItIsMeasuredAgainAndSaid) {
  CountingTuner first, second, third;
  const std::string text = part(first, "");
  second.library = "library 2";
  lines_.clear();
  const std::string again = part(second, text);
  EXPECT_EQ(second.used, expected());
  EXPECT_NE(again, text);
  if (ranks_.rank() == 0) {
    EXPECT_EQ(second.measured.size(), expected().size());
    EXPECT_EQ(lines_.front(),
              "algorithm choices in the checkpoint are measured again: gemm: library 2, made with library 1");
  }
  third.device = "another";
  lines_.clear();
  part(third, text);
  if (ranks_.rank() == 0) {
    EXPECT_THAT(lines_.front(), HasSubstr("device: another, made on device"));
  }
}

TEST_F(TuningTest, ASectionOfAnotherLibraryIsLeftAndTheOthersAreKept) {
  CountingTuner first, second;
  TunedChoices two = choices_from_json(part(first, ""), "");
  two.sections["attention"] = {"cuDNN 1", {{"case", "cudnn"}}};
  struct WithAttention final : CountingTuner {
    TunedChoices met() const override {
      TunedChoices met = CountingTuner::met();
      met.sections["attention"] = {"cuDNN 2", {}};
      return met;
    }
  } tuner;
  const std::string text = part(tuner, to_json(two));
  EXPECT_EQ(tuner.used, expected());
  EXPECT_TRUE(tuner.measured.empty());
  EXPECT_FALSE(choices_from_json(text, "").sections.contains("attention"));
  if (ranks_.rank() == 0) {
    EXPECT_THAT(lines_, ::testing::Contains(HasSubstr("measured again: attention: cuDNN 2, made with cuDNN 1")));
  }
}

// Each rank prepares; what one refuses, with its words, is what all do and keep.
TEST_F(TuningTest, WhatOneRankRefusesNoRankUses) {
  const bool last = ranks_.rank() == ranks_.size() - 1;
  CountingTuner tuner;
  tuner.lines = {"line of all", "line of rank " + std::to_string(ranks_.rank())};
  if (last) tuner.refused = {{"question of all", "something else"}};
  const std::string text = part(tuner, "");
  auto all = expected();
  all["question of all"] = "something else";
  EXPECT_EQ(tuner.used, all);
  EXPECT_EQ(choices_from_json(text, "").sections.at("gemm").choices, all);
  if (ranks_.rank() == 0) {
    std::ifstream in(file());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
    EXPECT_EQ(std::count_if(lines_.begin(), lines_.end(), [](auto& l) { return l.find("line of") != l.npos; }),
              ranks_.size() + 1)
        << "each line once";
  }
}

// Where all answers were saved nothing is measured: the refusal alone is new, and kept.
TEST_F(TuningTest, ARefusalOfWhatWasSavedIsKept) {
  CountingTuner first, second;
  const std::string saved = part(first, "");
  if (ranks_.rank() == ranks_.size() - 1) second.refused = {{"question of all", "something else"}};
  const std::string text = part(second, saved);
  EXPECT_TRUE(second.measured.empty());
  EXPECT_EQ(second.used.at("question of all"), "something else");
  if (ranks_.rank() == 0) {
    std::ifstream in(file());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
}

TEST_F(TuningTest, WhatIsDemandedAndNotToBeHadIsAnErrorOfAllRanks) {
  CountingTuner tuner;
  tuner.fails = ranks_.rank() == ranks_.size() - 1;
  try {
    part(tuner, "");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("not to be had"));
  }
}

TEST_F(TuningTest, RanksThatDifferChooseNothing) {
  if (ranks_.size() == 1) GTEST_SKIP() << "on several ranks";
  CountingTuner tuner;
  if (ranks_.rank() == 1) tuner.library = "library 2";
  EXPECT_EQ(part(tuner, ""), "");
  EXPECT_TRUE(tuner.used.empty() && tuner.measured.empty());
  if (ranks_.rank() == 0) {
    EXPECT_THAT(log_.warnings().front(), HasSubstr("ranks have 2 kinds of devices or libraries"));
  }
}

TEST_F(TuningTest, DamagedChoicesAreAnErrorOfAllRanks) {
  CountingTuner tuner;
  const TunedChoices bad{.device = "device", .sections = {{"gemm", {"library 1", {{"question of all", "bad"}}}}}};
  for (const std::string& text : {std::string("{\"format\": 1"), to_json(bad)}) {
    try {
      part(tuner, text);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
      EXPECT_THAT(error.what(), HasSubstr("[choices]"));
    }
  }
}

}  // namespace
}  // namespace ashlar::testing
