// launch/scripts/common.sh: what it installs, when it asks for nothing, and where it stops.
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

class Packages : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(scratch_.path() / "bin");
    command("apt-get", "echo \"apt-get $*\" >>\"$calls\"");
    command("sudo", "echo sudo >>\"$calls\"; exec \"$@\"");
    command("dpkg-query", "printf '%s\\n' 'cmake installed' 'g++ installed' 'zlib1g-dev config-files'; exit 1");
    command("id", "echo 0");
    os("ID=debian\nVERSION_ID=\"12\"\n");
    list("# comment\ncmake\ng++\n\n");
  }

  void command(const std::string& name, const std::string& body) {
    testing::write_program(scratch_.file("bin/" + name), body);
  }
  void os(const std::string& text) { std::ofstream(scratch_.file("os-release")) << text; }
  void list(const std::string& text) { std::ofstream(scratch_.file("packages")) << text; }

  ShellResult install() {
    return run_shell("set -euo pipefail\nroot=" + shell_quote(ASHLAR_SOURCE_DIR) +
                     "\n. \"$root/launch/scripts/common.sh\"\npackage_list=" + shell_quote(scratch_.file("packages")) +
                     "\nexport calls=" + shell_quote(scratch_.file("calls")) +
                     " ASHLAR_OS_RELEASE=" + shell_quote(scratch_.file("os-release")) +
                     "\nPATH=" + shell_quote((scratch_.path() / "bin").string()) + ":$PATH\ninstall_packages\n");
  }

  std::string calls() {
    std::ifstream file(scratch_.file("calls"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::ScratchDir scratch_;
};

TEST_F(Packages, NothingMissingCallsNoPackageManager) {
  os("ID=plan9\n");  // nor does it matter which system this is
  const ShellResult result = install();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all 2 packages are installed"));
  EXPECT_EQ(calls(), "");
}

TEST_F(Packages, InstallsOnlyWhatIsMissing) {
  list("cmake\nzlib1g-dev\nninja-build # the builder\n");
  const ShellResult result = install();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(calls(), HasSubstr("apt-get update"));
  EXPECT_THAT(calls(), HasSubstr(" ninja-build zlib1g-dev\n"));
  EXPECT_THAT(calls(), Not(HasSubstr("cmake")));
  EXPECT_THAT(calls(), Not(HasSubstr("sudo")));
}

TEST_F(Packages, UbuntuIsKnownAndAUserGoesThroughSudo) {
  list("zlib1g-dev\n");
  os("ID=ubuntu\nVERSION_ID=\"24.04\"\n");
  command("id", "echo 1000");
  const ShellResult result = install();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(calls(), HasSubstr("sudo\napt-get update"));
}

TEST_F(Packages, AnotherSystemGetsTheListAndCode2) {
  for (const char* text : {"ID=debian\nVERSION_ID=\"11\"\n", "ID=fedora\nVERSION_ID=40\n", ""}) {
    list("zlib1g-dev\nninja-build\n");
    os(text);
    const ShellResult result = install();
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("ninja-build zlib1g-dev"));
    EXPECT_EQ(calls(), "");
  }
}

TEST_F(Packages, AFailingInstallShowsWhyAndStops) {
  list("zlib1g-dev\n");
  command("apt-get", "echo 'E: no mirror'; exit 100");
  const ShellResult result = install();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("E: no mirror"));
  EXPECT_THAT(result.err, HasSubstr("could not install: zlib1g-dev"));
}

TEST_F(Packages, TheRealListNamesEveryPackageOnce) {
  const ShellResult result =
      run_shell("sed 's/#.*//; /^ *$/d' " + shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/packages.debian") +
                " | sort | tee /dev/stderr | uniq -d");
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("cmake\n"));
  EXPECT_THAT(result.err, HasSubstr("g++\n"));
}

// The arguments of the two commands: one clear line and exit code 2 before anything is installed or built.
TEST(Arguments, BadOnesStopWithOneLine) {
  const std::string root = ASHLAR_SOURCE_DIR;
  for (const std::string arguments : {"check --bad", "check extra", "check --only", "check --only nosuchsuite",
                                      "quickstart --bad", "quickstart --steps", "quickstart --steps 0",
                                      "quickstart --steps x", "quickstart --run-dir", "quickstart /nowhere/at/all"}) {
    const ShellResult result = run_shell("cd / && bash " + root + "/" + arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << arguments << "\n" << result.err;
  }
}

TEST(Arguments, HelpSaysHowAndDoesNothing) {
  const std::string root = ASHLAR_SOURCE_DIR;
  for (const std::string command : {"check", "quickstart"}) {
    for (const std::string option : {" --help", " -h"}) {
      const ShellResult result = run_shell("cd / && bash " + root + "/" + command + option);
      EXPECT_EQ(result.code, 0) << command;
      EXPECT_THAT(result.out, HasSubstr("./" + command));
      EXPECT_EQ(result.err, "");
    }
  }
}

}  // namespace
}  // namespace ashlar
