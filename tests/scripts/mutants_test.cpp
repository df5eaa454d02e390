// tests/layouts/mutants.sh reads its table; what it does with a mutant, its own runs show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

class Mutants : public ::testing::Test {
 protected:
  ShellResult run(const std::string& arguments, const std::string& table = "") {
    std::string script = "export ASHLAR_BUILD_DIR=" + shell_quote(scratch_.path().string()) + "\n";
    if (!table.empty()) {
      std::ofstream(scratch_.file("table")) << table;
      script += "export ASHLAR_MUTANTS=" + shell_quote(scratch_.file("table")) + "\n";
    }
    return run_shell(script + shell_quote(ASHLAR_SOURCE_DIR "/tests/layouts/mutants.sh") + " " + arguments);
  }
  testing::ScratchDir scratch_;
};

TEST_F(Mutants, FitTheSources) {
  const ShellResult result = run("--list");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_GE(std::count(result.out.begin(), result.out.end(), '\n'), 100);
}

TEST_F(Mutants, AreRefusedWhereTheirTextIsNotThereOnce) {
  const std::string head = "@ LICENSE\n= some_name\n";
  for (const std::string text : {"- not in that file\n", "- the\n", "+ nothing to replace\n"}) {
    const ShellResult result = run("--list", head + text);
    EXPECT_EQ(result.code, 70) << text;
    EXPECT_THAT(result.err, HasSubstr("mutant some_name")) << text;
    EXPECT_THAT(result.err, HasSubstr("out of date")) << text;
  }
}

TEST_F(Mutants, AreFoundByName) {
  EXPECT_EQ(run("--list --from no_such_name").code, 2);
  const std::string table = "@ LICENSE\n= some_name\n- TERMS AND CONDITIONS FOR USE, REPRODUCTION\n";
  EXPECT_EQ(run("--list --only some_name", table).out, "some_name LICENSE\n");
  EXPECT_EQ(run("--list --only other_name", table).code, 2);
}

}  // namespace
}  // namespace ashlar
