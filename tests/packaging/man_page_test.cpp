// `ashlar man`: the help texts of all commands, word for word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "core/base/strings.h"
#include "launch/manual/exit_codes.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::packaging {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

std::string output(const std::string& words) {
  const ShellResult result = run_shell(shell_quote(ASHLAR_BINARY) + " " + words);
  EXPECT_EQ(result.code, 0) << words << ": " << result.err;
  return result.out;
}

// What troff prints for a literal text.
std::string printed(std::string text) {
  for (const auto& [escape, letter] :
       {std::pair("\\(aq", "'"), std::pair("\\(ga", "`"), std::pair("\\(ha", "^"), std::pair("\\(ti", "~"),
        std::pair("\\-", "-"), std::pair("\\&", ""), std::pair("\\e", "\\")}) {
    for (size_t at = 0; (at = text.find(escape, at)) != std::string::npos; at += std::string(letter).size())
      text.replace(at, std::string(escape).size(), letter);
  }
  return text;
}

TEST(ManPage, HoldsTheHelpOfEveryCommand) {
  const std::string page = printed(output("man"));
  std::istringstream overview(output("--help"));
  int commands = 0;
  for (std::string line; std::getline(overview, line);) {
    if (!line.starts_with("  ")) continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    ++commands;
    EXPECT_THAT(page, HasSubstr(".Ss " + name + "\n.Bd -literal\n" + output(name + " --help") + ".Ed\n"));
  }
  EXPECT_GT(commands, 15);
}

// No line of a help text is a request of troff.
TEST(ManPage, HasOnlyRequestsOfItsOwn) {
  std::istringstream lines(output("man"));
  bool in_text = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == ".Ed") in_text = false;
    if (in_text) {
      EXPECT_FALSE(line.starts_with(".") || line.starts_with("'")) << line;
    }
    if (line.starts_with(".Bd")) in_text = true;
  }
}

TEST(ManPage, PleasesMandoc) {
  if (run_shell("command -v mandoc").code != 0) GTEST_SKIP() << "mandoc is not installed";
  const ShellResult judged = run_shell(shell_quote(ASHLAR_BINARY) + " man | mandoc -T lint -W warning");
  EXPECT_EQ(judged.code, 0) << judged.out;
  EXPECT_EQ(judged.out, "");
}

TEST(ManPage, ExitCodesAreThoseOfTheGuide) {
  std::ifstream file(ASHLAR_SOURCE_DIR "/launch/guide/when-it-fails.md");
  const std::string guide(std::istreambuf_iterator<char>(file), {});
  const std::string page = printed(output("man"));
  std::string table = "| exit code | meaning |\n|---|---|\n";
  for (const manual::ExitCodeText& row : manual::kExitCodes) {
    table += str_cat("| ", row.codes, " | ", row.meaning, " |\n");
    EXPECT_THAT(page, HasSubstr(str_cat(".It ", row.codes, "\n", row.meaning, "\n")));
  }
  EXPECT_THAT(guide, HasSubstr(table + "\n"));
}

}  // namespace
}  // namespace ashlar::packaging
