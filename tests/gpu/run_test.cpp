// The bundle and its script, here without a GPU: what run.sh says and counts, with stand-ins for the bundle's programs;
// and the real bundle where it can be built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using ::testing::StartsWith;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A bundle whose first program answers --device as `device` says, and runs `body` otherwise; the others pass.
class GpuRun : public ::testing::Test {
 protected:
  void make_bundle(const std::string& device, const std::string& body) {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(ASHLAR_SOURCE_DIR "/tests/gpu/run.sh", folder_ / "run.sh",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_ / "commit") << "0123abc\n";
    testing::write_program(folder_ / "bin/gpu_conformance",
                           "if [ \"$1\" = --device ]; then " + device + "; fi\n" + body + "\n");
    for (const char* other : {"gpu_kernels", "nccl.sh", "training.sh", "determinism.sh", "bench.sh", "ashlar"})
      testing::write_program(folder_ / "bin" / other, "echo \"$0 has $*, cublasLt is ${ASHLAR_CUBLASLT-none}\"\n");
  }
  testing::ShellResult run(const std::string& arguments = "") {
    return run_shell(shell_quote(folder_ / "run.sh") + " " + arguments);
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = std::filesystem::path(scratch_.path()) / "bundle";
};

TEST_F(GpuRun, WithoutAGpuTheFirstLineSaysSo) {
  make_bundle("echo 'no GPU: the driver sees no device'; exit 3", "exit 0");
  const auto result = run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, StartsWith("no GPU: the driver sees no device\n"));
}

TEST_F(GpuRun, AProgramThatCannotStartIsNoGpuEither) {
  make_bundle("echo 'lib.so: cannot open' >&2; exit 127", "exit 0");
  const auto result = run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, StartsWith("no GPU: bin/gpu_conformance cannot run here: lib.so: cannot open\n"));
}

TEST_F(GpuRun, WhatPassesIsCountedAndWritten) {
  make_bundle("echo 'Some \"GPU\"'; exit 0", "echo '34 kernels equal, 0 differ'");
  const auto result = run();
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, StartsWith("GPU: Some \"GPU\"\n"));
  const std::string part = text_of(folder_ / "results/conformance.json");
  EXPECT_THAT(part, HasSubstr(R"("status": "passed", "exit": 0)"));
  EXPECT_THAT(part, HasSubstr(R"("says": "34 kernels equal, 0 differ")"));
  const std::string summary = text_of(folder_ / "results/summary.json");
  EXPECT_THAT(summary, StartsWith(R"({"commit": "0123abc", "device": "Some \"GPU\"", "seconds": )"));
  EXPECT_THAT(summary, HasSubstr(R"("failed": 0, "absent": 0)"));
  EXPECT_THAT(result.out, HasSubstr("conformance      passed"));
  for (const char* name :
       {"kernels", "nccl_2", "nccl_4", "training", "determinism", "bench_kernels", "bench_cudnn", "bench_own"})
    EXPECT_THAT(text_of(folder_ / "results" / (std::string(name) + ".json")), HasSubstr(R"("status": "passed")"));
  EXPECT_THAT(text_of(folder_ / "results/training.log"), ::testing::ContainsRegex("has .*/training 200, cublasLt is "));
}

TEST_F(GpuRun, APartThatIsNotInTheBundleIsSaid) {
  make_bundle("echo G; exit 0", "echo '34 kernels equal, 0 differ'");
  std::filesystem::remove(folder_ / "bin/gpu_kernels");
  const auto result = run();
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.out, ::testing::ContainsRegex("kernels +absent .* not in this bundle"));
}

TEST_F(GpuRun, CublasLtIsTheOneThatIsNamed) {
  make_bundle("echo G; exit 0", "exit 0");
  const auto result = run_shell("ASHLAR_CUBLASLT=/some/libcublasLt.so.13 " + shell_quote(folder_ / "run.sh"));
  EXPECT_THAT(result.out, HasSubstr("cublasLt: /some/libcublasLt.so.13\n"));
  EXPECT_THAT(text_of(folder_ / "results/kernels.log"), HasSubstr("cublasLt is /some/libcublasLt.so.13"));
}

TEST_F(GpuRun, WhatFailsIsTheExitCode) {
  make_bundle("echo G; exit 0", "echo '33 kernels equal, 1 differ'; exit 1");
  const auto result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(text_of(folder_ / "results/summary.json"), HasSubstr(R"("failed": 1)"));
  EXPECT_THAT(text_of(folder_ / "results/conformance.json"), HasSubstr(R"("status": "failed", "exit": 1)"));
}

TEST_F(GpuRun, ResultsOfAnotherGpuAreNotWrittenOver) {
  make_bundle("echo G; exit 0", "exit 0");
  EXPECT_EQ(run().code, 0);
  make_bundle("echo Another; exit 0", "exit 0");
  const auto result = run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("expected a new or empty folder, or results of 0123abc on Another"));
  EXPECT_EQ(run(shell_quote(folder_ / "again")).code, 0);
}

TEST_F(GpuRun, ACallGoesOnWhereTheOneBeforeEnded) {
  make_bundle("echo G; exit 0", "echo once >> \"$(dirname \"$0\")/../times\"");
  // Two minutes are enough for the first part and one on two ranks; six are promised to the kernels.
  const auto first = run("--minutes 2");
  EXPECT_EQ(first.code, 5) << first.out << first.err;
  EXPECT_THAT(first.out, ::testing::ContainsRegex("conformance +passed"));
  EXPECT_THAT(first.out, ::testing::ContainsRegex("kernels +left"));
  EXPECT_THAT(text_of(folder_ / "results/summary.json"), HasSubstr("\"left\": "));
  const auto second = run();
  EXPECT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, ::testing::ContainsRegex("kernels +passed"));
  EXPECT_EQ(text_of(folder_ / "times"), "once\n") << "what has passed is not run again";
  const auto third = run("--only conformance");
  EXPECT_EQ(third.code, 0);
  EXPECT_EQ(text_of(folder_ / "times"), "once\nonce\n");
}

TEST_F(GpuRun, OnlySomePartsAreRun) {
  make_bundle("echo G; exit 0", "exit 0");
  const auto result = run("--only kernels,bench_own");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "results/bench_own.log"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "results/conformance.json"));
  const auto parts = run("--parts");
  EXPECT_THAT(parts.out, StartsWith("conformance\nkernels\n"));
  const auto unknown = run("--only kernel");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no part kernel; ./run.sh --parts lists them"));
  EXPECT_EQ(run("--minutes soon").code, 2);
}

// As a batch system stops a job at its limit.
TEST_F(GpuRun, WhatWasWrittenBeforeASignalIsKept) {
  make_bundle("echo G; exit 0", "echo '12 kernels equal so far'; sleep 60");
  const auto stopped = run_shell("timeout 2 " + shell_quote(folder_ / "run.sh"));
  EXPECT_THAT(text_of(folder_ / "results/conformance.json"), HasSubstr(R"("status": "cut off")"));
  EXPECT_THAT(text_of(folder_ / "results/conformance.json"), HasSubstr(R"("says": "12 kernels equal so far")"));
  EXPECT_THAT(text_of(folder_ / "results/summary.txt"), ::testing::ContainsRegex("kernels +left"));
  const auto listed = run_shell("tar tzf " + shell_quote(folder_ / "results.tar.gz"));
  EXPECT_THAT(listed.out, HasSubstr("results/conformance.log\n"));
  EXPECT_THAT(listed.out, HasSubstr("results/summary.json\n"));
  make_bundle("echo G; exit 0", "echo '34 kernels equal, 0 differ'");
  EXPECT_EQ(run().code, 0) << "the part that was stopped is run again";
  EXPECT_THAT(text_of(folder_ / "results/conformance.json"), HasSubstr(R"("status": "passed")"));
}

TEST_F(GpuRun, LibrariesOfWheelsAreFound) {
  make_bundle("echo G; exit 0", "exit 0");
  const std::filesystem::path wheels = folder_ / "venv/lib/python3.12/site-packages/nvidia";
  for (const char* file : {"cu13/lib/libcublasLt.so.13", "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2"}) {
    std::filesystem::create_directories((wheels / file).parent_path());
    std::ofstream(wheels / file) << "a library\n";
  }
  const auto result = run_shell("CUDA_HOME=/nowhere VIRTUAL_ENV=" + shell_quote(folder_ / "venv") +
                                " PATH=/usr/bin:/bin " + shell_quote(folder_ / "run.sh") + " --only kernels");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  // A CUDA in /usr/local comes first; machines of continuous integration have none.
  const bool none = run_shell("ls -d /usr/local/cuda*/lib64").code != 0;
  const std::string where = none ? wheels.string() : "";
  for (const char* line : {"cublasLt: ", "cuDNN: ", "NCCL: "})
    EXPECT_THAT(result.out, HasSubstr(line + (where.empty() ? "/" : where)));
}

/// The parts themselves, on the stand-ins for NVIDIA's libraries.
class GpuParts : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(ASHLAR_KERNELS_ON_STAND_INS)
    const std::filesystem::path bin = folder_ / "bin";
    std::filesystem::create_directories(bin);
    for (const char* script : {"common.sh", "training.sh", "determinism.sh", "nccl.sh", "bench.sh"})
      std::filesystem::copy_file(std::filesystem::path(ASHLAR_SOURCE_DIR "/tests/gpu/parts") / script, bin / script);
    std::filesystem::create_symlink(ASHLAR_ON_STAND_INS, bin / "ashlar");
    setenv("ASHLAR_CUBLASLT", ASHLAR_STAND_IN_CUBLASLT, 1);
    std::filesystem::create_symlink(ASHLAR_NCCL_ON_STAND_INS, bin / "gpu_nccl");
    setenv("ASHLAR_GPU_WIDTH", "16", 1);
    setenv("ASHLAR_GPU_LENGTH", "8", 1);
#else
    GTEST_SKIP() << "no CUDA toolkit: launch/scripts/cuda_toolkit.sh DIR gets one";
#endif
  }
  testing::ShellResult run(const std::string& script) {
    return run_shell("cd " + shell_quote(folder_) + " && " + script);
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = scratch_.path();
};

TEST_F(GpuParts, KernelsAreHeldAgainstTheirReferences) {
#if defined(ASHLAR_KERNELS_ON_STAND_INS)
  const auto result = run(shell_quote(ASHLAR_KERNELS_ON_STAND_INS) +
                          " --gtest_brief=1 --gtest_filter='ElementwiseTest.*Fill*:ElementwiseTest.*Copy*'");
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("PASSED  . [1-9]"));
#endif
}

TEST_F(GpuParts, RanksExchangeOverNccl) {
#if !defined(ASHLAR_STAND_IN_NCCL)
  GTEST_SKIP() << "no nccl.h to build the stand-in for NCCL against";
#else
  setenv("ASHLAR_NCCL", ASHLAR_STAND_IN_NCCL, 1);
  for (const char* ranks : {"2", "4"}) {
    const auto result = run(std::string("bin/nccl.sh ") + ranks);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string(ranks) + " ranks over NCCL 2."));
    EXPECT_THAT(result.out, HasSubstr(": 15 results a rank equal"));
  }
  setenv("ASHLAR_NCCL", "/nowhere/libnccl.so.2", 1);
  const auto none = run("bin/nccl.sh 2");
  EXPECT_NE(none.code, 0);
  EXPECT_THAT(none.err, HasSubstr("/nowhere/libnccl.so.2"));
  unsetenv("ASHLAR_NCCL");
#endif
}

TEST_F(GpuParts, TrainingsAreHeldAgainstTheCpu) {
  const auto result = run("bin/training.sh runs 3");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("3 steps: fp64 differs by "));
  // Another seed is another run: the comparison sees it.
  const auto other =
      run("sed -i 's/run.dtype=\"${run#\\*-}\"/& run.seed=${#run}/' bin/training.sh && bin/training.sh again 3");
  EXPECT_EQ(other.code, 1) << other.out << other.err;
}

TEST_F(GpuParts, RunsAreHeldAgainstThemselves) {
  const auto result = run("bin/determinism.sh runs 3");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 steps twice: equal losses, gradient norms and bytes of "));
}

TEST_F(GpuParts, EachModelIsMeasured) {
  setenv(
      "ASHLAR_GPU_WORDS",
      "model.d_model=32 model.n_layers=1 model.n_heads=2 model.n_kv_heads=1 model.d_ff=32 vocab.size=64 vocab.pad_to=1 "
      "train.sequence_length=8 train.global_batch=16",
      1);
  std::filesystem::copy_file(ASHLAR_SOURCE_DIR "/configs/gpt2-124m.toml", folder_ / "gpt2-124m.toml");
  const auto result = run("bin/bench.sh own");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* model : {"gpt2-124m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b"})
    EXPECT_THAT(result.out, ::testing::ContainsRegex(std::string(model) + " \\{.*\"tokens_per_sec\":[0-9]"));
  EXPECT_THAT(result.out, ::testing::EndsWith("qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b; failed none\n"));
  const auto failed = run("ASHLAR_GPU_WORDS=\"$ASHLAR_GPU_WORDS train.micro_batch=5\" bin/bench.sh own");
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, ::testing::ContainsRegex("qwen2.5-3b failed: .*train.micro_batch"));
  unsetenv("ASHLAR_GPU_WORDS");
}

/// Made of this build's programs: small, complete, and started from another folder.
TEST_F(GpuRun, TheBundleRunsFromAnyFolder) {
#if !defined(ASHLAR_GPU_PROGRAMS)
  GTEST_SKIP() << "no nvcc when this was configured: launch/scripts/cuda_toolkit.sh DIR gets one";
#else
  const std::string file = std::filesystem::path(scratch_.path()) / "bundle.tar.xz";
  const auto packed = run_shell("ASHLAR_BUILD_DIR=" + shell_quote(ASHLAR_BUILD_DIR) +
                                " " ASHLAR_SOURCE_DIR "/tests/gpu/bundle.sh " + shell_quote(file));
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_LT(std::filesystem::file_size(file), uint64_t{38} << 20);
  const auto result = run_shell("cd " + shell_quote(scratch_.path()) + " && tar xf bundle.tar.xz && ashlar-gpu/run.sh");
  if (result.code == 3) {
    EXPECT_THAT(result.out, StartsWith("no GPU: "));
  } else {
    EXPECT_EQ(result.code, 0) << result.out << result.err;
  }
#endif
}

}  // namespace
}  // namespace ashlar
