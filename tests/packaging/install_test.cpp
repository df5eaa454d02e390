// `cmake --install`: what lies where, and that the program runs from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/support/file_bytes.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::packaging {
namespace {

using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

TEST(Install, PutsEveryFileInItsUsualPlaceAndTheProgramRunsThere) {
  const testing::ScratchDir scratch;
  const std::string build = std::filesystem::path(ASHLAR_BINARY).parent_path().string();
  const ShellResult installed = run_shell("DESTDIR=" + shell_quote(scratch.path().string()) + " cmake --install " +
                                          shell_quote(build) + " --prefix /some/where");
  ASSERT_EQ(installed.code, 0) << installed.err;
  const std::filesystem::path top = scratch.path() / "some/where";
  const auto exists = [&](const std::string& file) { return std::filesystem::is_regular_file(top / file); };
  for (const char* file :
       {"bin/ashlar", "share/ashlar/configs/shakespeare-char.toml", "share/ashlar/configs/devices/h100-sxm.toml",
        "share/doc/ashlar/README.md", "share/doc/ashlar/LICENSE", "share/doc/ashlar/guide/tutorial.md"})
    EXPECT_TRUE(exists(file)) << file;

  const std::string program = shell_quote((top / "bin/ashlar").string());
  for (const auto& [file, words] : {std::pair("share/man/man1/ashlar.1", "man"),
                                    std::pair("share/bash-completion/completions/ashlar", "completions bash"),
                                    std::pair("share/zsh/site-functions/_ashlar", "completions zsh"),
                                    std::pair("share/fish/vendor_completions.d/ashlar.fish", "completions fish")}) {
    const ShellResult printed = run_shell(program + " " + words);
    EXPECT_EQ(printed.code, 0) << printed.err;
    EXPECT_GT(printed.out.size(), 1000u);
    ASSERT_TRUE(exists(file)) << file;
    EXPECT_EQ(testing::slurp(top / file), printed.out) << file;
  }
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) folders.insert(entry.path().filename());
  EXPECT_THAT(folders, ::testing::ElementsAre("some")) << "nothing beside the prefix";
}

// The recipes name the version of the project, which CMakeLists.txt has.
TEST(Recipes, NameThisVersion) {
  const std::string said = run_shell(shell_quote(ASHLAR_BINARY) + " --version").out;
  const std::string version = said.substr(7, said.find(' ', 7) - 7);
  EXPECT_THAT(version, ::testing::ContainsRegex("^[0-9]+\\.[0-9]+\\.[0-9]+$"));
  const std::string folder = ASHLAR_SOURCE_DIR "/launch/packaging/";
  EXPECT_THAT(testing::slurp(folder + "recipe.yaml"), ::testing::HasSubstr("version: \"" + version + "\"\n"));
  EXPECT_THAT(testing::slurp(folder + "ashlar.def"),
              ::testing::HasSubstr("archive=ashlar-" + version + "-x86_64-linux.tar.gz\n\n%files"));
}

}  // namespace
}  // namespace ashlar::packaging
