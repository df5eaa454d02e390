// The parts of the bundle, on the stand-ins for NVIDIA's libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/gpu/fixture.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;

/// The parts themselves, on the stand-ins for NVIDIA's libraries.
class GpuParts : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(ASHLAR_KERNELS_ON_STAND_INS)
    const std::filesystem::path bin = folder_ / "bin";
    std::filesystem::create_directories(bin);
    for (const char* script : {"common.sh", "clocks.sh", "training.sh", "determinism.sh", "nccl.sh", "bench.sh",
                               "profile.sh", "two_gpus.sh"})
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
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("qwen2.5-3b: .*product bf16 .*: cublasLt 13.1.0 suggests [1-9] of at most 16"));
  EXPECT_THAT(result.out, ::testing::EndsWith("qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b; failed none\n"));
  const auto failed = run("ASHLAR_GPU_WORDS=\"$ASHLAR_GPU_WORDS train.micro_batch=5\" bin/bench.sh own");
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, ::testing::ContainsRegex("qwen2.5-3b failed: .*train.micro_batch"));
  unsetenv("ASHLAR_GPU_WORDS");
}

// A measured rate is held against the predicted one, so both must be of the same micro-batch.
TEST_F(GpuParts, ModelsAreMeasuredAsTheyArePredicted) {
  const std::string bench = text_of(folder_ / "bin/bench.sh");
  const std::string page = text_of(ASHLAR_SOURCE_DIR "/kernels/cuda/SPEED.md");
  for (const auto& [file, name] : {std::pair("gpt2-124m", "GPT-2 124M"), std::pair("qwen2.5-0.5b", "Qwen2.5 0.5B"),
                                   std::pair("qwen2.5-1.5b", "Qwen2.5 1.5B"), std::pair("qwen2.5-3b", "Qwen2.5 3B")}) {
    const std::string row = std::string("| ") + name + " | H100 | ", call = std::string("\nbench ") + file + " ";
    const size_t predicted = page.find(row), measured = bench.find(call);
    ASSERT_NE(predicted, std::string::npos) << row;
    ASSERT_NE(measured, std::string::npos) << call;
    EXPECT_EQ(std::stoi(bench.substr(measured + call.size())), std::stoi(page.substr(predicted + row.size()))) << name;
  }
}

/// GPUs as nvidia-smi lists them.
void make_gpus(const std::filesystem::path& folder, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "echo 'GPU " + std::to_string(i) + ": NVIDIA H100 80GB HBM3 (UUID: GPU-...)'\n";
  write_program_in_folder(folder / "nvidia-smi", "[ \"$1\" = -L ] || exit 2\n" + lines);
}

TEST_F(GpuParts, OneGpuSkipsWhatNeedsTwo) {
  make_gpus(folder_ / "smi", 1);
  const auto result = run("PATH=$PWD/smi:$PATH bin/two_gpus.sh data runs 3");
  EXPECT_EQ(result.code, 77) << result.err;
  EXPECT_EQ(result.out, "skipped: this needs two GPUs, and programs see 1\n");
  make_gpus(folder_ / "smi", 2);
  EXPECT_EQ(run("CUDA_VISIBLE_DEVICES=1 PATH=$PWD/smi:$PATH bin/two_gpus.sh data runs 3").code, 77);
}

TEST_F(GpuParts, TwoGpusAreHeldAgainstOne) {
#if !defined(ASHLAR_STAND_IN_NCCL)
  GTEST_SKIP() << "no nccl.h to build the stand-in for NCCL against";
#else
  make_gpus(folder_ / "smi", 2);
  std::filesystem::copy_file(ASHLAR_SOURCE_DIR "/configs/gpt2-124m.toml", folder_ / "gpt2-124m.toml");
  const std::string environment =
      "PATH=$PWD/smi:$PATH ASHLAR_NCCL=" + shell_quote(ASHLAR_STAND_IN_NCCL) +
      " ASHLAR_STAND_IN_CUDA=devices=2 ASHLAR_GPU_LARGEST=4096 ASHLAR_GPU_BENCH_STEPS=1 ASHLAR_GPU_SECONDS=0.001 "
      "ASHLAR_GPU_WORDS='model.d_model=32 model.n_layers=1 model.n_heads=2 model.d_ff=32 vocab.size=64 vocab.pad_to=1 "
      "train.sequence_length=8 train.global_batch=4 train.micro_batch=2' ";
  const auto result = run(environment + "bin/two_gpus.sh data data 2");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("data 2: 2 steps differ from one GPU by .* at most"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\"tokens_per_sec\":[0-9]"));
  const auto bandwidth = run(environment + "bin/two_gpus.sh bandwidth b 0");
  EXPECT_EQ(bandwidth.code, 0) << bandwidth.out << bandwidth.err;
  EXPECT_THAT(bandwidth.out, HasSubstr("all_reduce"));
  // Another seed is another run: the comparison sees it, before anything is measured.
  const auto other = run("sed -i 's/\"mesh.$kind=2\"/& run.seed=4/' bin/two_gpus.sh && " + environment +
                         "bin/two_gpus.sh tensor again 2");
  EXPECT_EQ(other.code, 1) << other.out << other.err;
  EXPECT_THAT(other.out, ::testing::ContainsRegex("tensor 2: 2 steps differ from one GPU by .* at most"));
#endif
}

TEST_F(GpuParts, SixKernelsAreProfiledWhereNcuIs) {
  const std::filesystem::path ncu = folder_ / "nsight/ncu";
  if (run_shell("ls /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu").out.empty()) {
    const auto none = run("bin/profile.sh profile");
    EXPECT_EQ(none.code, 77) << none.out << none.err;
    EXPECT_EQ(none.out, "skipped: Nsight Compute (ncu) is not installed here\n");
  }
  const auto profile = [&](const std::string& body) {
    write_program_in_folder(ncu, body);
    return run("PATH=$PWD/nsight:$PATH bin/profile.sh profile");
  };
  const auto refused = profile("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1");
  EXPECT_EQ(refused.code, 77) << refused.out << refused.err;
  EXPECT_THAT(refused.out, HasSubstr("the counters are for the administrator alone here"));
  const std::string body = R"sh(
if [ "$1" = --import ]; then cat kernels.ncu-rep; exit; fi
[[ $* == *'--kernel-name regex:^('* ]] || exit 2
names=$2
while [ $# -gt 0 ]; do case $1 in -o) to=$2 ;; */ashlar) break ;; esac; shift; done
"$@" >/dev/null 2>log || { cat log; exit 1; }
names=${names#*(}
for name in $(tr '|' ' ' <<<"${names%)*}"); do printf '"0","%s<ashlar::BF16>(Problem)","1"\n' "$name"; done >$to.ncu-rep
)sh";
  setenv("ASHLAR_GPU_WORDS",
         "model.d_model=32 model.n_heads=2 model.n_kv_heads=1 model.d_ff=32 vocab.size=64 vocab.pad_to=1 "
         "train.sequence_length=8 train.global_batch=2 train.micro_batch=2",
         1);
  const auto result = profile(body);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out, "6 kernels profiled into kernels.csv; missing: none\n");
  EXPECT_THAT(text_of(folder_ / "profile/kernels.csv"), HasSubstr("keys_kernel<"));
  const auto fewer = profile("[ \"$1\" = --import ] || exit 0; sed /queries/d kernels.ncu-rep");
  EXPECT_EQ(fewer.code, 1);
  EXPECT_EQ(fewer.out, "5 kernels profiled into kernels.csv; missing: queries_kernel\n");
  unsetenv("ASHLAR_GPU_WORDS");
}

}  // namespace
}  // namespace ashlar
