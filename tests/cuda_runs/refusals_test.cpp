// A machine that cannot do what run.device = "cuda" asks: one line that says what is missing, exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/strings.h"
#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;

struct Machine {
  const char* options;    ///< ASHLAR_STAND_IN_CUDA
  const char* variables;  ///< of the environment, the last word wins
  int ranks;
  std::vector<const char*> words;  ///< all of them in the line
};

TEST(CudaRefusals, AreOneLineAndExitCodeTwo) {
  const StandInRun runs;
  const Machine machines[] = {
      {"driver=0", "", 1, {"needs NVIDIA's driver", "libcuda.so.1"}},
      {"driver=12040",
       "ASHLAR_NVML=" ASHLAR_STAND_IN_NVML_LIBRARY " ASHLAR_STAND_IN_DRIVER=550.54.14",
       1,
       {"expected NVIDIA's driver 580 or newer, of CUDA 13.0", "got 550.54.14, which supports CUDA 12.4",
        "nvcc of CUDA 12"}},
      {"devices=0", "CUDA_VISIBLE_DEVICES=", 1, {"finds no GPU", "CUDA_VISIBLE_DEVICES = \"\""}},
      {"capability=75", "", 1, {"compute capability 7.5", "needs 8.0"}},
      {"",
       "ASHLAR_CUBLASLT=/nowhere/libcublasLt.so.13",
       1,
       {"cublasLt", "/nowhere/libcublasLt.so.13", "ASHLAR_CUBLASLT"}},
      {"devices=2", "", 3, {"device 2", "2 are visible", "no more ranks on a machine than it has GPUs"}},
      {"devices=1", "", 2, {"ranks 0 and 1 have the same device", "GPU-6173686c", "no more ranks"}},
      {"devices=2 same_uuid=1", "", 2, {"ranks 0 and 1 have the same device", "CUDA_VISIBLE_DEVICES"}},
  };
  for (const Machine& machine : machines) {
    SCOPED_TRACE(machine.options);
    const std::string words = str_cat("run.dir=r train.global_batch=", machine.ranks);
    const ShellResult r = machine.ranks == 1 ? runs.train(words, machine.options, machine.variables)
                                             : runs.train_on_ranks(machine.ranks, words, machine.options);
    EXPECT_EQ(r.code, 2) << r.out << r.err;
    if (machine.ranks == 1) {
      EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    }
    EXPECT_THAT(r.err, HasSubstr("ashlar: ["));
    for (const char* word : machine.words) EXPECT_THAT(r.err, HasSubstr(word));
  }
}

}  // namespace
}  // namespace ashlar::testing
