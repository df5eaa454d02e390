#include "core/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/tuning/joined_tuners.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TunedChoices some() {
  return {.device = "NVIDIA H100, sm_90",
          .sections = {{"gemm", {"cublasLt 13.1.0", {{"a", "1"}, {"b", ""}}}},
                       {"attention", {"cudnn 9.19", {{"c", "3"}}}}}};
}

std::string error_of(std::string_view text) {
  try {
    choices_from_json(text, "run/choices.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDamagedData);
    return e.what();
  }
  return "no error";
}

TEST(TunedChoices, SurviveTheirText) { EXPECT_EQ(choices_from_json(to_json(some()), "here"), some()); }

TEST(TunedChoices, DamagedTextsAreOneErrorThatNamesTheFile) {
  const std::string good = to_json(some());
  for (size_t length = 0; length + 2 < good.size(); length += 7)
    EXPECT_THAT(error_of(good.substr(0, length)),
                AllOf(HasSubstr("run/choices.json"), HasSubstr("measure the algorithms again")));
  EXPECT_THAT(error_of(R"({"format": 2, "device": "x", "sections": {}})"), HasSubstr("format is 2, not 1"));
  EXPECT_THAT(error_of(R"({"format": 1, "device": 7, "sections": {}})"), HasSubstr("another type"));
  EXPECT_THAT(error_of(R"({"format": 1, "device": "x", "sections": {"gemm": {"library": "y", "choices": {"q": 1}}}})"),
              HasSubstr("another type"));
  EXPECT_THAT(error_of(R"({"format": 1, "device": "x", "sections": {"gemm": {"library": "y"}}})"),
              HasSubstr("run/choices.json"));
}

TEST(TunedChoices, ForAnotherDeviceOrLibraryAreRefusedWithBothNames) {
  EXPECT_EQ(why_not(some(), some()), "");
  TunedChoices other = some();
  other.device = "NVIDIA A100, sm_80";
  EXPECT_EQ(why_not(some(), other), "device: NVIDIA H100, sm_90, made on NVIDIA A100, sm_80");
  other = some();
  other.sections["gemm"].library = "cublasLt 12.8.4";
  EXPECT_EQ(why_not(some(), other), "gemm: cublasLt 13.1.0, made with cublasLt 12.8.4");
  other = some();
  other.sections.erase("attention");
  EXPECT_EQ(why_not(some(), other), "");
}

TEST(TunedChoices, OnlyWhatIsNotAnsweredIsAskedAgain) {
  TunedChoices asked = some();
  asked.sections["gemm"].choices = {{"a", ""}, {"b", ""}, {"d", ""}};
  const TunedChoices open = unanswered(asked, some());
  const std::map<std::string, std::string> expected = {{"b", ""}, {"d", ""}};
  EXPECT_EQ(open.sections.at("gemm").choices, expected);
  EXPECT_TRUE(open.sections.at("attention").choices.contains("c") == false);
  EXPECT_EQ(num_choices(open), 2);
}

TEST(TunedChoices, UnitedKeepTheFirstAnswers) {
  TunedChoices second = some();
  second.sections["gemm"].choices = {{"a", "9"}, {"b", "2"}, {"d", "4"}};
  const TunedChoices all = united(some(), second);
  const std::map<std::string, std::string> expected = {{"a", "1"}, {"b", "2"}, {"d", "4"}};
  EXPECT_EQ(all.sections.at("gemm").choices, expected);
  EXPECT_EQ(all.sections.at("attention").choices, some().sections.at("attention").choices);
}

TEST(TunedChoices, ASectionOfAnotherLibraryIsNoReasonAgainstTheOthers) {
  TunedChoices made = some();
  made.sections["attention"].library = "cudnn 9.8";
  using Reasons = std::map<std::string, std::string>;
  EXPECT_EQ(reasons_against(made, some()), (Reasons{{"attention", "attention: cudnn 9.19, made with cudnn 9.8"}}));
  made.device = "another";
  const std::string device = "device: NVIDIA H100, sm_90, made on another";
  EXPECT_EQ(reasons_against(made, some()), (Reasons{{"attention", device}, {"gemm", device}}));
}

/// Has one section, in which it answers with its own name.
struct NamedTuner final : PreparingTuner {
  explicit NamedTuner(std::string n) : name(std::move(n)) {}
  TunedChoices met() const override { return {.device = "of " + name, .sections = {{name, {"lib", {{"q", answer}}}}}}; }
  TunedChoices measure(const TunedChoices& questions) override {
    TunedChoices out{.device = "any", .sections = {}};
    const auto section = questions.sections.find(name);
    if (section != questions.sections.end()) out.sections[name] = {"lib", {{"q", name}}};
    return out;
  }
  void use(const TunedChoices& choices) override { answer = choices.sections.at(name).choices.at("q"); }
  TunedChoices prepare() override { return {.device = "any", .sections = {{name, {"lib", {{"q", "refused"}}}}}}; }
  std::vector<std::string> report() override { return {"report of " + name}; }
  std::vector<std::string> details() override { return {"details of " + name}; }
  std::string name, answer;
};

TEST(JoinedTuners, EachHasItsSection) {
  NamedTuner a("a"), b("b");
  JoinedTuners joined({&a, &b});
  const TunedChoices met = joined.met();
  EXPECT_EQ(met.device, "of a");
  EXPECT_EQ(num_choices(met), 2);
  const TunedChoices measured = joined.measure(met);
  EXPECT_EQ(measured.device, "of a");
  joined.use(measured);
  EXPECT_EQ(a.answer, "a");
  EXPECT_EQ(b.answer, "b");
  EXPECT_EQ(num_choices(joined.prepare()), 2);
  EXPECT_EQ(joined.report(), (std::vector<std::string>{"report of a", "report of b"}));
  EXPECT_EQ(joined.details(), (std::vector<std::string>{"details of a", "details of b"}));
  TunedChoices some = met;
  some.sections.erase("b");
  EXPECT_EQ(num_choices(joined.measure(some)), 1);
}

}  // namespace
}  // namespace ashlar
