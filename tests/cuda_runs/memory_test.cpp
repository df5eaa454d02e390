// What a run takes of a GPU's memory, by name; and what is said when there is too little.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "kernels/make_backend.h"
#include "launch/training/memory.h"
#include "tests/cuda_runs/stand_in_run.h"
#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaMemory, OfLibrariesIsCountedByTheDriversWord) {
  ashlar_stand_in_reset("memory_mib=1024 context_mib=300");
  training::MemoryLedger ledger;
  const auto backend = kernels::make_backend({.device = "cuda"});
  ledger.add_of_device("context", *backend);
  backend->allocator(MemoryKind::kParameters).allocate(1);
  const auto another = kernels::make_backend({.device = "cuda"});  // of whose memory the first one knows nothing
  another->allocator(MemoryKind::kWorkspace).allocate(16 << 20);
  ledger.add_of_device("nccl", *backend);
  another->allocator(MemoryKind::kActivations).allocate(6 << 20);
  EXPECT_EQ(ledger.device_report(*backend),
            "339.7 MB of 1.07 GB = context 314.6 MB + nccl 16.8 MB + parameters 2.1 MB + others 6.3 MB");
  EXPECT_EQ(ledger.device_bytes(*backend), int64_t{318} << 20);
  const auto cpu = kernels::make_backend({.threads = 1});
  EXPECT_EQ(ledger.device_report(*cpu), "");
  EXPECT_EQ(ledger.device_bytes(*cpu), 0);
}

// The context takes 256 MiB, the slabs of the five kinds of a tiny run 2 MiB each. Two more slabs held the operands of
// products that were timed before the first step.
TEST(CudaMemory, OfARunIsNamedInItsLastLine) {
  const StandInRun runs;
  const ShellResult r = runs.train("train.steps=1 checkpoint.every=0 run.dir=r", "memory_mib=1024");
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(
      r.out,
      HasSubstr("memory of the device: 278.9 MB of 1.07 GB = context 268.4 MB + parameters 2.1 MB + "
                "gradients 2.1 MB + optimizer 2.1 MB + activations 6.3 MB + workspace 2.1 MB - freed since 4.2 MB"));
  EXPECT_EQ(runs.run().metric("r", "gpu_memory_bytes"), std::vector<double>{270.0 * (1 << 20)});
}

// A copy of a checkpoint to memory that the system did not lock is one that training waits for.
TEST(CudaMemory, OfCheckpointsThatIsNotLockedIsSaid) {
  const StandInRun runs;
  const ShellResult r = runs.train("train.steps=2 checkpoint.every=1 schedule.warmup_steps=1 run.dir=refused",
                                   "fail=cudaHostRegister:1:2");
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out + r.err, AllOf(HasSubstr("the system did not lock the "), HasSubstr("ulimit -l")));
}

TEST(CudaMemory, ThatIsTooLittleEndsTheRunBeforeItsFirstStep) {
  const StandInRun runs;
  struct Case {
    const char* words;
    const char* machine;
  };
  for (const Case c : {Case{"", "memory_mib=260"},  // parameters and gradients fit
                       // The model fits; three matrices of 512 x 1024 behind its feed-forward layers do not.
                       Case{"model.d_ff=1024 train.sequence_length=256 train.micro_batch=2", "memory_mib=267"}}) {
    SCOPED_TRACE(c.machine);
    const ShellResult r = runs.train(std::string("run.dir=r ") + c.words, c.machine);
    EXPECT_EQ(r.code, 6) << r.out << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr("MiB more of device memory are needed"), HasSubstr("MiB are free"),
                             HasSubstr("train.micro_batch")));
    EXPECT_THAT(r.out, Not(HasSubstr("step 1/")));
    EXPECT_TRUE(runs.run().metric("r", "loss").empty());
  }
}

}  // namespace
}  // namespace ashlar::testing
