// Algorithms are measured once and then kept: for the device and the library that they were measured with.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "kernels/cuda/host/cuda_state.h"
#include "tests/cublaslt/on_device.h"

namespace ashlar::cuda {
namespace {

using test::HostMatrix;
using test::random_matrix;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Which of the stand-in's algorithms it is: the second of eight words.
int number_of(const std::string& algorithm) {
  EXPECT_EQ(algorithm.size(), 128U);
  return std::stoi(algorithm.substr(16, 16), nullptr, 16);
}

class Choices : public CublasLtTest {
 protected:
  /// A product whose operands start `offset` elements behind an aligned address.
  HostMatrix product(int64_t offset = 0) {
    const DeviceMatrix a = on_device(random_matrix(DType::kFloat32, 24, 96, 1), offset),
                       b = on_device(random_matrix(DType::kFloat32, 40, 96, 2)),
                       c = on_device(random_matrix(DType::kFloat32, 24, 40, 3)),
                       pre = on_device(random_matrix(DType::kFloat32, 24, 40, 3));
    run({.a = a, .b = b, .c = c.mut(), .pre = pre.mut(), .transpose_b = true});
    return c.read();
  }
  Tuner& tuner() { return *gemm_tuner(*device_); }
  std::string error_of_using(const TunedChoices& choices) {
    try {
      tuner().use(choices);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(Choices, TheFastestThatRepeatsIsTaken) {
  start("", "delay=1");
  product(0);
  product(1);  // at an address that only the generic algorithms take
  const TunedChoices asked = tuner().met();
  EXPECT_EQ(asked.sections.at("gemm").library, "cublasLt 13.1.0");
  EXPECT_THAT(asked.device, HasSubstr("sm_90"));
  EXPECT_EQ(num_choices(asked), 2);
  const TunedChoices answers = tuner().measure(asked);
  ASSERT_EQ(num_choices(answers), 2);
  for (const auto& [question, answer] : answers.sections.at("gemm").choices) {
    const bool aligned = question.find("aa=256") != std::string::npos;
    EXPECT_EQ(number_of(answer), aligned ? 1 : 0) << question;  // 2 is the fastest, and does not repeat
  }
}

TEST_F(Choices, OfAnotherRanksProductsAreMeasuredToo) {
  product();
  TunedChoices asked = tuner().met();
  const std::string question = asked.sections.at("gemm").choices.begin()->first;
  std::string other = question;
  other.replace(other.find("n=24"), 4, "n=17");
  asked.sections["gemm"].choices = {{other, ""}};
  const TunedChoices answers = tuner().measure(asked);
  EXPECT_EQ(answers.sections.at("gemm").choices.begin()->first, other);
  EXPECT_FALSE(answers.sections.at("gemm").choices.begin()->second.empty());
}

// Beta 1 adds to what is there: each repetition must start from the same, or the best algorithm seems not to repeat.
TEST_F(Choices, SumsRepeatFromTheSameStart) {
  const DeviceMatrix a = on_device(random_matrix(DType::kBFloat16, 64, 32, 1)),
                     b = on_device(random_matrix(DType::kBFloat16, 64, 48, 2)),
                     c = on_device(random_matrix(DType::kFloat32, 32, 48, 3));
  run({.a = a, .b = b, .c = c.mut(), .transpose_a = true, .accumulate = true});
  EXPECT_EQ(num_choices(tuner().measure(tuner().met())), 1);
}

TEST_F(Choices, AreKeptAsTextAndGiveTheSameBits) {
  start("", "delay=1");
  const HostMatrix suggested = product();
  const TunedChoices answers = tuner().measure(tuner().met());
  tuner().use(answers);
  const HostMatrix chosen = product();
  EXPECT_FALSE(chosen == suggested) << "the two algorithms have the same bits: the test shows nothing";
  EXPECT_EQ(tuner().met(), answers);
  const std::string text = to_json(answers);

  start("", "");
  tuner().use(choices_from_json(text, "here"));  // before any product is met
  EXPECT_TRUE(product() == chosen);
  EXPECT_EQ(library_calls("heuristic"), 0);
}

TEST_F(Choices, OfAnotherDeviceOrLibraryAreRefused) {
  product();
  const TunedChoices answers = tuner().measure(tuner().met());
  start("capability=80", "");
  EXPECT_THAT(error_of_using(answers), AllOf(HasSubstr("device: "), HasSubstr("sm_80"), HasSubstr("sm_90")));
  start("", "version=120804");
  EXPECT_THAT(error_of_using(answers), HasSubstr("gemm: cublasLt 12.8.4, made with cublasLt 13.1.0"));
}

TEST_F(Choices, DamagedOnesAreOneClearError) {
  product();
  TunedChoices answers = tuner().measure(tuner().met());
  std::string& answer = answers.sections["gemm"].choices.begin()->second;
  const std::string good = answer;
  answer = good.substr(1);
  EXPECT_THAT(error_of_using(answers), AllOf(HasSubstr("not 128 hexadecimal digits"), HasSubstr("measure again")));
  answer = good;
  answer[3] = 'x';
  EXPECT_THAT(error_of_using(answers), HasSubstr("not 128 hexadecimal digits"));
  answer = "f" + good.substr(1);
  EXPECT_THAT(error_of_using(answers), AllOf(HasSubstr("CUBLAS_STATUS_INVALID_VALUE"), HasSubstr("cublasLt 13.1.0")));
  for (const std::string question : {"", "bf16", "fp16 fp32 n=1", "bf16 bf16 n=x"}) {
    TunedChoices wrong = answers;
    wrong.sections["gemm"].choices = {{question, ""}};
    EXPECT_THROW(tuner().measure(wrong), Error) << question;
  }
}

TEST_F(Choices, AnErrorNamesTheProductWhereNothingRepeats) {
  start("", "none_repeats=1");
  product();
  try {
    tuner().measure(tuner().met());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("none of the 3 algorithms of cublasLt 13.1.0"), HasSubstr("n=24 m=40 k=96")));
  }
}

TEST_F(Choices, WhereOperandsDoNotFitTheFirstSuggestionIsTaken) {
  product();
  TunedChoices asked = tuner().met();
  std::string question = asked.sections.at("gemm").choices.begin()->first;
  question.replace(question.find("n=24"), 4, "n=900000");
  question.replace(question.find("m=40"), 4, "m=9000");
  question.replace(question.find("sc=40"), 5, "sc=9000");
  question.replace(question.find("spre=40"), 7, "spre=9000");
  asked.sections["gemm"].choices = {{question, ""}};
  const TunedChoices answers = tuner().measure(asked);
  EXPECT_EQ(number_of(answers.sections.at("gemm").choices.at(question)), 0);
}

// The library's own choice is not known before a GPU is there: what it offered for each product is in the log.
TEST_F(Choices, AreReportedOnceWithTheCandidatesOfEachProduct) {
  start("", "delay=1");
  auto& plans = dynamic_cast<PreparingTuner&>(tuner());
  product(0);
  product(1);
  EXPECT_THAT(plans.details(), ::testing::IsEmpty()) << "nothing is measured yet";
  plans.measure(plans.met());
  const std::vector<std::string> lines = plans.details();
  ASSERT_EQ(lines.size(), 2U);
  int aligned = 0;
  for (const std::string& line : lines) {
    EXPECT_THAT(line, AllOf(HasSubstr("n=24 m=40 k=96"), HasSubstr("us; "), HasSubstr("cublasLt 13.1.0 suggests ")));
    const bool fast = line.find("aa=256") != std::string::npos;
    aligned += fast ? 1 : 0;
    // The stand-in has one more for aligned operands. The one that does not repeat is the fastest.
    EXPECT_THAT(line, HasSubstr(fast ? "suggests 3 of at most 16 algorithms, 3 usable" : "suggests 2 of at most 16"));
    EXPECT_THAT(line, HasSubstr("; 1 faster ones do not repeat"));
  }
  EXPECT_EQ(aligned, 1);
  EXPECT_THAT(plans.details(), ::testing::IsEmpty()) << "once";
}

// Copies of the largest result, e.g. of logits, would take memory from every later step.
TEST_F(Choices, LeaveNoMemoryBehind) {
  const DeviceMatrix a = on_device(random_matrix(DType::kBFloat16, 64, 32, 1)),
                     b = on_device(random_matrix(DType::kBFloat16, 64, 48, 2)),
                     c = on_device(random_matrix(DType::kFloat32, 32, 48, 3));
  run({.a = a, .b = b, .c = c.mut(), .transpose_a = true, .accumulate = true});
  TunedChoices asked = tuner().met();
  const std::string question = asked.sections.at("gemm").choices.begin()->first;
  std::string large = question;
  large.replace(large.find("n=32"), 4, "n=4096");
  large.replace(large.find("sa=32"), 5, "sa=4096");
  asked.sections["gemm"].choices = {{question, ""}, {large, ""}};
  Allocator& memory = device_->allocator(MemoryKind::kActivations);
  const int64_t used = memory.used_bytes(), taken = device_->state().taken_bytes, calls = memory.num_system_calls();
  const int64_t workspace = device_->allocator(MemoryKind::kWorkspace).high_water_bytes();
  tuner().measure(asked);
  EXPECT_GT(memory.num_system_calls(), calls) << "there was room: the test shows nothing";
  EXPECT_EQ(memory.used_bytes(), used);
  EXPECT_EQ(device_->state().taken_bytes - taken,
            device_->allocator(MemoryKind::kWorkspace).high_water_bytes() - workspace);
}

TEST(GemmKey, SurvivesItsText) {
  GemmKey key{.storage = DType::kBFloat16, .n = 1, .m = 2, .k = 3, .transpose_b = 1, .stride_a = 9, .align_pre = 16};
  EXPECT_EQ(GemmKey::parse(key.text()), key);
  GemmKey other = key;
  other.align_bias = 2;
  EXPECT_FALSE(other == key);
  EXPECT_NE(other.text(), key.text());
  EXPECT_THROW(GemmKey::parse(key.text() + " x=1"), Error);
}

}  // namespace
}  // namespace ashlar::cuda
