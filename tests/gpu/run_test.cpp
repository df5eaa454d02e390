// run.sh, here without a GPU: what it says and counts, with stand-ins for the bundle's programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/gpu/fixture.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using ::testing::StartsWith;

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

TEST_F(GpuRun, APartThatThisMachineCannotRunIsSkippedWithItsReason) {
  make_bundle("echo G; exit 0", "exit 0");
  testing::write_program(folder_ / "bin/profile.sh",
                         "echo 'skipped: Nsight Compute (ncu) is not installed here'; exit 77");
  const auto result = run();
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("profile +skipped .* Nsight Compute .ncu. is not installed here\n"));
  EXPECT_THAT(text_of(folder_ / "results/summary.json"), HasSubstr(R"("failed": 0, "absent": 0, "skipped": 1, )"));
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

// One that hangs, with what it has started, and does not end when it is told to.
TEST_F(GpuRun, APartThatHangsIsStoppedAtItsLimitAndTheOthersRun) {
  make_bundle("echo G; exit 0", "echo '34 kernels equal, 0 differ'");
  testing::write_program(folder_ / "bin/gpu_kernels",
                         "trap '' TERM; echo '12 of 90 suites passed'; sleep 300 & while :; do sleep 300; done");
  const auto result = run_shell("ASHLAR_GPU_LIMIT=1 " + shell_quote(folder_ / "run.sh") + " --only kernels,bench_own");
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  const std::string kernels = text_of(folder_ / "results/kernels.json");
  EXPECT_THAT(kernels, HasSubstr(R"("status": "cut off")"));
  EXPECT_THAT(kernels, HasSubstr(R"("says": "12 of 90 suites passed")"));
  EXPECT_THAT(text_of(folder_ / "results/bench_own.json"), HasSubstr(R"("status": "passed")"));
  const auto kept = run_shell("tar xzOf " + shell_quote(folder_ / "results.tar.gz") + " results/kernels.log");
  EXPECT_EQ(kept.out, "12 of 90 suites passed\n");
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

/// A stand-in for nvidia-smi, which writes one line while the GPU rests and `busy` after it where it is asked for
/// lines. It knows the reasons by one name alone.
void make_nvidia_smi(const std::filesystem::path& folder, const std::string& busy, const std::string& reasons) {
  write_program_in_folder(folder / "nvidia-smi", "case $* in *" + reasons + R"(.active*) ;; *) exit 2 ;; esac
case $* in *"-i 0 "*) ;; *) exit 2 ;; esac
loops=; for word; do [ "$word" != -l ] || loops=yes; done
if [ -z "$loops" ]; then
  echo 'NVIDIA H100 80GB HBM3, 580.65.06, 345, 1980, 2619, 2619, 70.12, 700.00, 31, 0, 0x0000000000000001'
else
  cat <<END
)" + busy + "\nEND\n  exec sleep 60\nfi\n");
}

TEST_F(GpuRun, ClocksStandBesideWhatIsMeasured) {
  make_bundle("echo G; exit 0", "exit 0");
  make_nvidia_smi(
      folder_ / "smi",
      "NVIDIA H100 80GB HBM3, 580.65.06, 1755, 1980, 2619, 2619, 699.50, 700.00, 66, 99, 0x0000000000000004\n"
      "NVIDIA H100 80GB HBM3, 580.65.06, 1410, 1980, 2619, 2619, 698.00, 700.00, 85, 99, 0x0000000000000024\n"
      "NVIDIA H100 80GB HBM3, 580.65.06, 1980, 1980, 2619, 2619, 601.00, 700.00, 60, 97, 0x0000000000000000",
      "clocks_event_reasons");
  testing::write_program(folder_ / "bin/bench.sh", "sleep 0.5");
  const std::string command = "PATH=" + shell_quote(folder_ / "smi") + ":$PATH " + shell_quote(folder_ / "run.sh");
  const auto result = run_shell(command + " --only bench_own");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("  NVIDIA H100 80GB HBM3 (SXM), driver 580.65.06: SM 1755 of 1980 MHz (least 1410), "
                        "memory 2619 of 2619 MHz, 698 of 700 W, 85 C; throttled in 2 of 3 samples: "
                        "power cap 2, software thermal slowdown 1\n"));
  const auto gpu = nlohmann::json::parse(text_of(folder_ / "results/bench_own.json")).at("gpu");
  EXPECT_EQ(gpu.at("kind"), "SXM");
  EXPECT_EQ(gpu.at("sm_mhz"), 1755);
  EXPECT_EQ(gpu.at("watts_limit"), 700);
  EXPECT_EQ(gpu.at("throttled"), 2);
  EXPECT_EQ(gpu.at("reasons").at("power cap"), 2);
  EXPECT_THAT(text_of(folder_ / "results/summary.txt"), HasSubstr("throttled in 2 of 3 samples"));
  // A driver before 535, and a card that may not clock up.
  make_nvidia_smi(folder_ / "smi",
                  "NVIDIA H100 PCIe, 525.60.13, 1200, 1755, 1593, 1593, 300.00, 350.00, 60, 90, 0x0000000000000002",
                  "clocks_throttle_reasons");
  EXPECT_THAT(
      run_shell(command + " --only bench_own").out,
      HasSubstr("NVIDIA H100 PCIe (PCIe), driver 525.60.13: SM 1200 of 1755 MHz (least 1200), memory 1593 of 1593 "
                "MHz, 300 of 350 W, 60 C; throttled in 1 of 1 samples: application clocks setting 1\n"));
  std::filesystem::remove(folder_ / "smi/nvidia-smi");
  EXPECT_EQ(run_shell(command + " --only bench_own").code, 0);
  if (run_shell("command -v nvidia-smi").code != 0) {
    EXPECT_TRUE(nlohmann::json::parse(text_of(folder_ / "results/bench_own.json")).at("gpu").is_null());
  }
}

/// With a driver that is too old for the bundle, as nvidia-smi and the CUDA runtime say.
class GpuRunOldDriver : public GpuRun {
 protected:
  void SetUp() override {
    make_bundle("echo 'no GPU: CUDA driver version is insufficient for CUDA runtime version'; exit 3", "exit 0");
    std::ofstream(folder_ / "needs") << "13.0 580\n";
    write_program_in_folder(folder_ / "smi/nvidia-smi", "case $* in *driver_version*) echo 550.54.14 ;; esac\n");
  }
  testing::ShellResult run(const std::string& arguments = "") {
    return run_shell("PATH=" + shell_quote(folder_ / "smi") + ":$PATH " + shell_quote(folder_ / "run.sh") + " " +
                     arguments);
  }
};

TEST_F(GpuRunOldDriver, IsNamedWithWhatItNeedsAndWhatToDo) {
  const auto result = run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, StartsWith("no GPU: the driver is 550.54.14, and this bundle (CUDA 13.0) needs 580 or newer: "
                                     "unpack beside it the bundle -cuda12"));
  EXPECT_THAT(result.out, HasSubstr("cuda-compat-13-0"));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  std::ofstream(folder_ / "needs") << "13.0 550\n";
  EXPECT_THAT(run().out, StartsWith("no GPU: CUDA driver version is insufficient")) << "the driver is not the reason";
}

TEST_F(GpuRunOldDriver, GoesOnWithTheBundleForCuda12) {
  const std::filesystem::path other = folder_.string() + "-cuda12";
  write_program_in_folder(other / "run.sh", "echo \"the other: $*\"; exit 5\n");
  const auto result = run("--only kernels");
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out,
              HasSubstr("the driver is 550.54.14, and this bundle (CUDA 13.0) needs 580 or newer: going on with"));
  EXPECT_THAT(result.out, HasSubstr("the other: --only kernels " + (folder_ / "results").string()));
}

}  // namespace
}  // namespace ashlar
