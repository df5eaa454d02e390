// A GPU that fails in a step: device and last work are named, and the run goes on from its checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaFailures, NameTheDeviceAndItsLastWork) {
  const StandInRun runs;
  const auto train = [&](int steps, const char* machine) {
    return runs.train(str_cat("run.dir=r schedule.decay_steps=3 train.steps=", steps), machine);
  };
  ASSERT_EQ(train(2, "").code, 0);
  struct Failure {
    const char* machine;  ///< the report of a step is waited for by an event
    int code;
    const char* words;
  };
  for (const Failure& f :
       {Failure{"fail_for_good=cudaEventSynchronize:4:214", 6, "the hardware has failed: see nvidia-smi -q and Xid"},
        Failure{"fail_for_good=cudaEventSynchronize:4:700", 70, "an illegal memory access was encountered"}}) {
    SCOPED_TRACE(f.machine);
    const ShellResult r = train(4, f.machine);
    EXPECT_EQ(r.code, f.code) << r.out << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr("cudaEventSynchronize: "), HasSubstr("device 0 (Ashlar Stand-In, GPU-6173686c"),
                             HasSubstr("last queued work: "), HasSubstr(f.words)));
  }
  const ShellResult again = train(4, "");
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("continuing from r/checkpoints/step-00000002 at step 2"));
}

// bf16 attention has more than 48 KiB of shared memory. A kernel is told so once, and launched eight times here.
TEST(CudaFailures, KernelsAreAllowedTheirSharedMemoryOnce) {
  const StandInRun runs;
  const std::string words = "run.dir=r run.dtype=bf16 model.d_model=64 model.n_heads=1";
  const ShellResult first = runs.train(words, "fail=cudaFuncSetAttribute:1:1");
  EXPECT_EQ(first.code, 70) << first.out << first.err;
  EXPECT_THAT(first.err, HasSubstr("[cuda] attention_"));
  const ShellResult later = runs.train(words, "fail=cudaFuncSetAttribute:5:1");
  EXPECT_EQ(later.code, 0) << later.out << later.err;
}

}  // namespace
}  // namespace ashlar::testing
