// eval and generate on a device: that of the run, the one that is asked for, and the CPU where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kWithRanks = shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh");

/// The kernels' own bound in fp32 (tests/cuda_runs).
constexpr double kBound = 2e-5;

/// The program's device "cuda" is the emulated one; a run that was trained on it.
class EvalDevice : public ::testing::Test {
 protected:
  EvalDevice() {
    const ShellResult r = gpu_.ashlar("train tiny.toml run.device=cuda vocab.pad_to=2 " + kShort);
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  }
  /// Runs a command of the program that has no GPU, on a machine where no library of NVIDIA's is found.
  ShellResult without_gpu(const std::string& words) const {
    return run_shell(str_cat("cd ", shell_quote(gpu_.dir().string()), " && exec env ",
                             preloading(ASHLAR_NO_NVIDIA_LIBRARY), " ", shell_quote(ASHLAR_BINARY), " ", words));
  }
  static double loss(const ShellResult& result) {
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    const size_t at = result.out.find("val_loss ");
    if (at == std::string::npos) ADD_FAILURE() << result.out << result.err;
    return at == std::string::npos ? 0 : std::stod(result.out.substr(at + 9));
  }

  const std::string kShort = "train.steps=2 schedule.warmup_steps=1 train.eval_sequences=1";
  const RunFixture gpu_{ASHLAR_ON_EMULATOR};
};

TEST_F(EvalDevice, IsThatOfTheRunOrTheOneAskedFor) {
  const ShellResult cpu = gpu_.ashlar("eval run run.device=cpu --sequences 3");
  EXPECT_THAT(cpu.out, Not(HasSubstr("emulated device")));
  const double expected = loss(cpu);
  for (const char* words : {"eval run --sequences 3", "eval run run.device=cuda --sequences 3"}) {
    const ShellResult got = gpu_.ashlar(words);
    EXPECT_THAT(got.out, HasSubstr("emulated device 0"));
    EXPECT_NEAR(loss(got), expected, kBound * expected);
  }
  const ShellResult ranks = run_shell(str_cat(
      "cd ", shell_quote(gpu_.dir().string()), " && env ASHLAR_NCCL= ", preloading(ASHLAR_NO_NVIDIA_LIBRARY),
      " timeout 100 ", kWithRanks, " 2 ", shell_quote(ASHLAR_ON_EMULATOR), " eval run --tensor 2 --sequences 3"));
  EXPECT_THAT(ranks.out, HasSubstr("emulated device 0"));
  EXPECT_NEAR(loss(ranks), expected, kBound * expected);

  // A CPU's run is evaluated on the CPU, where nothing else is asked for.
  ASSERT_EQ(gpu_.ashlar("train tiny.toml run.dir=cpu " + kShort).code, 0);
  EXPECT_THAT(gpu_.ashlar("eval cpu --sequences 3").out, Not(HasSubstr("emulated device")));
  EXPECT_THAT(gpu_.ashlar("eval cpu --sequences 3 run.device=cuda").out, HasSubstr("emulated device 0"));
}

TEST_F(EvalDevice, GeneratesTheTextOfTheCpu) {
  const std::string words = "generate run --temperature 0 --tokens 12 --prompt 'stone ' ";
  const ShellResult cpu = gpu_.ashlar(words + "run.device=cpu"), cuda = gpu_.ashlar(words);
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_EQ(cuda.code, 0) << cuda.err;
  EXPECT_EQ(cuda.out, cpu.out);
}

TEST_F(EvalDevice, IsTheCpuWithAWarningWhereThereIsNoOther) {
  const ShellResult cpu = without_gpu("eval run run.device=cpu --sequences 3"),
                    got = without_gpu("eval run --sequences 3");
  EXPECT_EQ(loss(got), loss(cpu));
  const char* const kWarning =
      "the run was trained with run.device = cuda, which cannot be used here; computing on the CPU";
  EXPECT_THAT(got.out + got.err, HasSubstr(kWarning));
  const ShellResult text = without_gpu("generate run --tokens 3");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.err, HasSubstr(kWarning));
  for (const char* command : {"eval", "generate"}) {
    const ShellResult asked = without_gpu(str_cat(command, " run run.device=cuda"));
    EXPECT_EQ(asked.code, 2) << asked.out << asked.err;
    EXPECT_EQ(std::count(asked.err.begin(), asked.err.end(), '\n'), 1) << asked.err;
    const ShellResult other = without_gpu(str_cat(command, " run run.device=tpu"));
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("'run.device=tpu': expected run.device=cpu or run.device=cuda"));
    const ShellResult key = without_gpu(str_cat(command, " run run.dtype=fp32"));
    EXPECT_EQ(key.code, 2);
    EXPECT_THAT(key.err,
                AllOf(HasSubstr(str_cat("[", command, "] 'run.dtype=fp32': expected no key other than run.device")),
                      Not(HasSubstr("\n["))));
  }
}

}  // namespace
}  // namespace ashlar::testing
