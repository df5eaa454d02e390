// bundle.sh: what it packs, for which drivers, and the real bundle where it can be built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/fixture.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using ::testing::StartsWith;

/// bundle.sh on build folders that a stand-in for CMake fills.
class GpuBundle : public ::testing::Test {
 protected:
  void SetUp() override {
    make_toolkit("13", "13.0");
    make_build(folder_ / "build", "13");
    write_program_in_folder(folder_ / "bin/cmake", R"(
echo "CUDA_HOME=$CUDA_HOME $*" >>"$made"
for word; do case $word in *build-cuda12) to=$word ;; -DASHLAR_NVCC=*) nvcc=${word#*=} ;; esac; done
mkdir -p "$to/tests/gpu"
cp /bin/true "$to/tests/gpu/gpu_conformance"
cp /bin/true "$to/ashlar"
[ -z "${nvcc-}" ] || printf 'ASHLAR_NVCC:FILEPATH=%s\n' "$nvcc" >"$to/CMakeCache.txt"
)");
  }
  void make_toolkit(const std::string& name, const std::string& release) {
    write_program_in_folder(folder_ / name / "bin/nvcc", "echo 'Cuda compilation tools, release " + release + ", V'\n");
  }
  void make_build(const std::filesystem::path& build, const std::string& toolkit) {
    std::filesystem::create_directories(build / "tests/gpu");
    std::filesystem::copy_file("/bin/true", build / "tests/gpu/gpu_conformance");
    std::filesystem::copy_file("/bin/true", build / "ashlar");
    std::ofstream(build / "CMakeCache.txt")
        << "ASHLAR_NVCC:FILEPATH=" << (folder_ / toolkit / "bin/nvcc").string() << "\n";
  }
  testing::ShellResult bundle(const std::string& environment) {
    return run_shell("cd " + shell_quote(folder_) +
                     " && export made=$PWD/made ASHLAR_BUILD_DIR=$PWD/build PATH=$PWD/bin:$PATH " + environment +
                     " && " ASHLAR_SOURCE_DIR "/tests/gpu/bundle.sh out.tar.xz");
  }
  std::string needs(const std::string& archive, const std::string& name) {
    return run_shell("cd " + shell_quote(folder_) + " && tar xOf " + archive + " " + name + "/needs").out;
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = scratch_.path();
};

TEST_F(GpuBundle, IsMadeForCuda12TooWhereItsCompilerIs) {
  make_toolkit("12", "12.8");
  const auto result = bundle("CUDA_HOME=$PWD/12");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(needs("out.tar.xz", "ashlar-gpu"), "13.0 580\n");
  EXPECT_EQ(needs("out-cuda12.tar.xz", "ashlar-gpu-cuda12"), "12.8 525\n");
  const std::string made = text_of(folder_ / "made");
  EXPECT_THAT(made, HasSubstr("CUDA_HOME=" + (folder_ / "12").string() + " --preset release"));
  EXPECT_THAT(made, HasSubstr("--target gpu_conformance gpu_kernels gpu_nccl ashlar"));
}

TEST_F(GpuBundle, IsForOneCudaWhereTheOtherIsNot) {
  const auto result = bundle("CUDA_HOME=$PWD/13");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  if (run_shell("ls -d /usr/local/cuda-12*").code != 0) {
    EXPECT_THAT(result.out, HasSubstr("no nvcc of CUDA 12 here, so no bundle for drivers before 580"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out-cuda12.tar.xz"));
  }
  make_toolkit("12", "12.4");
  std::filesystem::remove_all(folder_ / "build");
  make_build(folder_ / "build", "12");
  EXPECT_EQ(bundle("CUDA_HOME=$PWD/12").code, 0);
  EXPECT_EQ(needs("out.tar.xz", "ashlar-gpu"), "12.4 525\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out-cuda12.tar.xz")) << "the first is for it already";
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
