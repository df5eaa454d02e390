// The first contact with a GPU, as the README has it: its commands are read from the page and run in an empty folder.
// The programs of the bundle are stand-ins that say at once what they would; parts_test.cpp runs the real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/gpu/fixture.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

/// The indented lines of the page's section on a machine with a GPU, without what stands behind a gap.
std::vector<std::string> commands_of_the_page() {
  const std::string page = text_of(ASHLAR_SOURCE_DIR "/tests/gpu/README.md");
  std::istringstream section(page.substr(page.find("## On a machine with a GPU")));
  const std::string indent(7, ' ');
  std::vector<std::string> commands;
  for (std::string line; std::getline(section, line);) {
    if (!line.starts_with(indent)) continue;
    line = line.substr(indent.size());
    commands.push_back(line.substr(0, line.find("   ")));
  }
  return commands;
}

#if defined(ASHLAR_KERNELS_ON_STAND_INS) && defined(ASHLAR_STAND_IN_NCCL)

class GpuDrill : public ::testing::Test {
 protected:
  void SetUp() override {
    // 1. The machine with nvcc: the project and what was built there.
    for (const char* folder : {"tests", "launch", "configs"})
      std::filesystem::create_directory_symlink(std::filesystem::path(ASHLAR_SOURCE_DIR) / folder,
                                                at("project") / folder);
    program("project/build/tests/gpu/gpu_conformance", R"(
[ "$1" != --device ] || { echo 'Ashlar Stand-In, compute capability 9.0'; exit; }
mkdir -p "$1" && echo words >"$1/add.bin" && echo '34 kernels equal, 0 differ')");
    for (const char* name : {"gpu_kernels", "gpu_nccl"})
      program(std::string("project/build/tests/gpu/") + name, "echo all equal");
    // Trainings are those of parts_test.cpp; this one writes what a run leaves behind.
    program("project/build/ashlar", R"(case $* in
  *train.attention=cudnn*) echo 'no cuDNN here' >&2; exit 2 ;;
  bench*) echo '{"tokens_per_sec":1}' ;;
  train*)
    for word; do case $word in run.dir=*) to=${word#*=} ;; esac; done
    mkdir -p "$to/checkpoints/last" && echo weights >"$to/checkpoints/last/model.safetensors"
    for step in 1 2; do echo "{\"step\":$step,\"loss\":2.5,\"grad_norm\":1.0}"; done >"$to/metrics.jsonl" ;;
esac)");
    program("tools/cmake", "exit 0");
    // 2. The machine with a GPU: a driver, and Python's wheels once they are installed.
    program("tools/nvidia-smi", R"(case $* in
  -L) echo 'GPU 0: Ashlar Stand-In (UUID: GPU-6173686c)' ;;
  *query-gpu=driver*) echo 580.65.06 ;;
  *query-gpu*' -l 1') exit ;;
  *query-gpu*) echo 'Ashlar Stand-In, 580.65.06, 1980, 1980, 2619, 2619, 500, 700, 50, 90, 0x0' ;;
  *) echo 'Driver Version : 580.65.06' ;; esac)");
    program("tools/pip", R"(nvidia=$VIRTUAL_ENV/lib/python3.12/site-packages/nvidia
[ "$*" = 'install nvidia-cublas nvidia-cudnn-cu13 nvidia-nccl-cu13' ] || exit 2
mkdir -p "$nvidia"/{cu13,nccl}/lib
cp )" + shell_quote(ASHLAR_STAND_IN_CUBLASLT) +
                             " \"$nvidia/cu13/lib/libcublasLt.so.13\"\ncp " + shell_quote(ASHLAR_STAND_IN_NCCL) +
                             " \"$nvidia/nccl/lib/libnccl.so.2\"");
  }
  std::filesystem::path at(const std::string& path) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    if (path == "project" || path == "gpu") std::filesystem::create_directories(folder_ / path);
    return folder_ / path;
  }
  void program(const std::string& path, const std::string& body) { testing::write_program(at(path), body); }
  ShellResult run(const std::string& folder, const std::string& command) {
    // This machine may have libraries of NVIDIA's, which come before wheels: they are named.
    const std::string nvidia = (folder_ / "venv/lib/python3.12/site-packages/nvidia").string();
    return run_shell("cd " + shell_quote(at(folder)) + " && export PATH=" + shell_quote(folder_ / "tools") +
                     ":$PATH VIRTUAL_ENV=" + shell_quote(folder_ / "venv") + " CUDA_HOME= ASHLAR_GPU_STEPS=2" +
                     " ASHLAR_CUBLASLT=" + nvidia + "/cu13/lib/libcublasLt.so.13" + " ASHLAR_NCCL=" + nvidia +
                     "/nccl/lib/libnccl.so.2 && " + command);
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = scratch_.path();
};

TEST_F(GpuDrill, CommandsOfThePageBringTheResultsHome) {
  const std::vector<std::string> commands = commands_of_the_page();
  ASSERT_EQ(commands.size(), 3U);
  const ShellResult bundle = run("project", commands[0]);
  ASSERT_EQ(bundle.code, 0) << bundle.out << bundle.err;
  std::filesystem::copy_file(at("project") / "ashlar-gpu.tar.xz", at("gpu") / "ashlar-gpu.tar.xz");
  const ShellResult installed = run("gpu", commands[1]);
  ASSERT_EQ(installed.code, 0) << commands[1] << installed.err;
  const ShellResult ran = run("gpu", commands[2]);
  EXPECT_EQ(ran.code, 1) << ran.out << ran.err;  // no stand-in for cuDNN
  const nlohmann::json summary = nlohmann::json::parse(text_of(at("gpu") / "ashlar-gpu/results/summary.json"));
  EXPECT_EQ(summary.at("left"), 0);
  std::vector<std::string> names;
  for (const nlohmann::json& part : summary.at("parts")) {
    const std::string name = part.at("part"), status = part.at("status"), says = part.at("says");
    names.push_back(name);
    const bool two_gpus = name == "data_2" || name == "tensor_2" || name == "nccl_bandwidth";
    if (name == "bench_cudnn") {
      EXPECT_EQ(status, "failed");
    } else if (two_gpus) {
      EXPECT_EQ(status, "skipped");
      EXPECT_EQ(says, "skipped: this needs two GPUs, and programs see 1");
    } else if (name != "profile") {
      EXPECT_EQ(status, "passed") << name << ": " << text_of(at("gpu") / ("ashlar-gpu/results/" + name + ".log"));
    }
  }
  // 3. What is sent back has all of it.
  const std::string page = text_of(ASHLAR_SOURCE_DIR "/tests/gpu/README.md");
  ASSERT_THAT(page, HasSubstr("Send back `ashlar-gpu/results.tar.gz`"));
  const ShellResult tar = run("gpu", "tar tzf ashlar-gpu/results.tar.gz");
  EXPECT_EQ(run("gpu", "ashlar-gpu/run.sh --parts | wc -l").out, std::to_string(names.size()) + "\n");
  for (const std::string& name : names) {
    for (const char* kind : {".json", ".log"}) EXPECT_THAT(tar.out, HasSubstr("results/" + name + kind + "\n"));
  }
  for (const char* file : {"summary.json", "summary.txt", "nvidia-smi.txt", "conformance/add.bin"})
    EXPECT_THAT(tar.out, HasSubstr(std::string("results/") + file + "\n"));
}

#endif

TEST(GpuPage, HasThreeCommands) {
  const std::vector<std::string> commands = commands_of_the_page();
  ASSERT_EQ(commands.size(), 3U);
  EXPECT_THAT(commands[0], HasSubstr("tests/gpu/bundle.sh "));
  EXPECT_THAT(commands[1], ::testing::StartsWith("pip install "));
  EXPECT_THAT(commands[2], ::testing::EndsWith("/run.sh"));
}

}  // namespace
}  // namespace ashlar
