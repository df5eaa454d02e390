// Whose attention a GPU computes, where there is no cuDNN for it: no stand-in of one is linked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaAttention, IsOurOwnWithoutCudnnAndTheLogSaysWhyUnlessItWasAsked) {
  const StandInRun runs;
  const std::string words = "run.dtype=bf16 train.steps=1 checkpoint.every=0 ";
  const ShellResult automatic = runs.train(words + "run.dir=a");
  ASSERT_EQ(automatic.code, 0) << automatic.out << automatic.err;
  EXPECT_THAT(automatic.out,
              HasSubstr("attention uses our own kernels: [cuDNN] this build of ashlar has no cuDNN attention"));
  const ShellResult own = runs.train(words + "train.attention=own run.dir=o");
  ASSERT_EQ(own.code, 0) << own.out << own.err;
  EXPECT_THAT(own.out, Not(HasSubstr("attention is")));
}

TEST(CudaAttention, OfCudnnIsRefusedAtTheStartWhereItCannotBe) {
  const StandInRun runs;
  for (const auto& [words, reason] :
       {std::pair("run.dtype=bf16",
                  "[train.attention] \"cudnn\" cannot be used: [cuDNN] this build of ashlar has no cuDNN attention"),
        std::pair("run.dtype=fp32", "train.attention = \"cudnn\": expected bf16, got fp32"),
        std::pair("run.dtype=bf16 run.device=cpu", "train.attention = \"cudnn\": expected run.device = \"cuda\"")}) {
    const ShellResult r = runs.train(std::string("run.dir=r train.attention=cudnn ") + words);
    EXPECT_EQ(r.code, 2) << r.out << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr(reason));
  }
}

}  // namespace
}  // namespace ashlar::testing
