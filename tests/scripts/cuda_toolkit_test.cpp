// launch/scripts/cuda_toolkit.sh: what it asks of pip, the folder it makes of it, and where it stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

class CudaToolkit : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(scratch_.path() / "bin");
    python(R"(
echo "$*" >>"$calls"
all=$*
[ "$2 $3" != "pip --version" ] || exit 0
while [ "$1" != --target ]; do shift; done
to=$2/nvidia/cu13
mkdir -p "$to"/bin "$to"/include "$to"/lib "$to"/nvvm/bin
printf '#!/bin/sh\necho compiler 13.0\n' >"$to/bin/nvcc"
chmod +x "$to/bin/nvcc"
touch "$to/bin/ptxas" "$to/include/cuda_runtime.h" "$to/lib/libcudart.so.13" "$to/lib/libcudart_static.a"
[ -n "${without_cicc:-}" ] || touch "$to/nvvm/bin/cicc"
case $all in *cudnn-frontend*)
  mkdir "$2/include"
  touch "$2/include/cudnn_frontend.h" ;;
esac
case $all in *cublas*)
  touch "$to"/include/{cublasLt,nccl,cudnn}.h "$to"/lib/lib{cublasLt,nccl,cudnn}.so.1 ;;
esac
)");
  }

  // What stands in for python3.
  void python(const std::string& body) { testing::write_program(scratch_.file("bin/python3"), body); }
  ShellResult install(const std::string& arguments, const std::string& environment = "") {
    return run_shell("export calls=" + shell_quote(scratch_.file("calls")) + "\n" + environment +
                     " PATH=" + shell_quote((scratch_.path() / "bin").string()) + ":$PATH " +
                     shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/cuda_toolkit.sh") + " " + arguments);
  }
  std::filesystem::path toolkit() const { return scratch_.path() / "cuda"; }
  std::string calls() {
    std::ifstream file(scratch_.file("calls"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::ScratchDir scratch_;
};

TEST_F(CudaToolkit, LaysWheelsOutAsNvidiaDoes) {
  const ShellResult result = install(shell_quote(toolkit().string()));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("compiler 13.0"));
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "bin" / "nvcc"));
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "lib64" / "libcudart_static.a"));
  EXPECT_EQ(std::filesystem::read_symlink(toolkit() / "lib64" / "libcudart.so"), "libcudart.so.13");
  EXPECT_THAT(calls(), HasSubstr("nvidia-cuda-nvcc==13.0.*"));
  EXPECT_THAT(calls(), Not(HasSubstr("cublas")));
}

TEST_F(CudaToolkit, ASecondRunFetchesNothingAndLibrariesAreFetchedOnce) {
  ASSERT_EQ(install(shell_quote(toolkit().string())).code, 0);
  const std::string first = calls();
  const ShellResult again = install(shell_quote(toolkit().string()));
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr("is complete"));
  EXPECT_EQ(calls(), first);
  EXPECT_EQ(install(shell_quote(toolkit().string()) + " --libraries").code, 0);
  EXPECT_THAT(calls(), HasSubstr("nvidia-cublas"));
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "lib64" / "libnccl.so"));
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "include" / "cudnn_frontend.h"));
  const std::string both = calls();
  EXPECT_EQ(install(shell_quote(toolkit().string())).code, 0);
  EXPECT_EQ(calls(), both) << "with libraries is more than without";
}

TEST_F(CudaToolkit, TheFrontendAloneIsHeadersAndNoCompiler) {
  const ShellResult result = install(shell_quote(toolkit().string()) + " --cudnn-frontend");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "include" / "cudnn_frontend.h"));
  EXPECT_THAT(calls(), HasSubstr("nvidia-cudnn-frontend==1.32.*"));
  EXPECT_THAT(calls(), Not(HasSubstr("nvcc")));
  EXPECT_THAT(install(shell_quote(toolkit().string()) + " --cudnn-frontend").out, HasSubstr("is complete"));
  const ShellResult both = install(shell_quote(toolkit().string()) + " --cudnn-frontend --libraries");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give only one of them"));
}

TEST_F(CudaToolkit, WhatIsThereStaysWhenMoreCannotBeFetched) {
  ASSERT_EQ(install(shell_quote(toolkit().string())).code, 0);
  python("[ \"$2 $3\" = 'pip --version' ]");
  EXPECT_EQ(install(shell_quote(toolkit().string()) + " --libraries").code, 2);
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "bin" / "nvcc"));
}

TEST_F(CudaToolkit, WhatIsMissingInTheWheelsIsNamedAndTheFolderIsNotTaken) {
  const ShellResult result = install(shell_quote(toolkit().string()), "without_cicc=1");
  EXPECT_EQ(result.code, 70);
  EXPECT_THAT(result.err, HasSubstr("expected nvvm/bin/cicc in the downloaded wheels, got none"));
  EXPECT_EQ(install(shell_quote(toolkit().string())).code, 0) << "an incomplete folder is made anew";
}

TEST_F(CudaToolkit, AFolderOfOthersIsLeftAlone) {
  std::filesystem::create_directory(toolkit());
  std::ofstream(toolkit() / "mine") << "precious";
  const ShellResult result = install(shell_quote(toolkit().string()));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not empty and was not filled by this script"));
  EXPECT_TRUE(std::filesystem::exists(toolkit() / "mine"));
  EXPECT_EQ(calls(), "");
}

TEST_F(CudaToolkit, PipThatFailsOrIsMissingIsSaid) {
  python("[ \"$2 $3\" = 'pip --version' ] || { echo 'no matching distribution' >&2; exit 1; }");
  const ShellResult failed = install(shell_quote(toolkit().string()));
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("no matching distribution"));
  python("exit 1");
  const ShellResult missing = install(shell_quote((scratch_.path() / "other").string()));
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("python3-pip"));
}

TEST_F(CudaToolkit, ArgumentsAreChecked) {
  EXPECT_EQ(install("").code, 2);
  EXPECT_EQ(install("one two").code, 2);
  EXPECT_THAT(install("--fast").err, HasSubstr("unknown argument '--fast'"));
  EXPECT_EQ(install("--help").code, 0);
}

}  // namespace
}  // namespace ashlar
