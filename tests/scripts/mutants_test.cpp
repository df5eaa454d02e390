// tests/mutants/mutants.sh reads its tables, and what it makes of a run of tests; what it does with a mutant in full,
// its own runs show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

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
      std::ofstream(scratch_.file("some.txt")) << table;
      script += "export ASHLAR_MUTANTS=" + shell_quote(scratch_.path().string()) + "\n";
    }
    return run_shell(script + shell_quote(ASHLAR_SOURCE_DIR "/tests/mutants/mutants.sh") + " " + arguments);
  }
  testing::ScratchDir scratch_;
};

TEST_F(Mutants, FitTheSources) {
  const ShellResult result = run("--list");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_GE(std::count(result.out.begin(), result.out.end(), '\n'), 350);
  // Every table is one of a suite, for ./check --long.
  int tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASHLAR_SOURCE_DIR "/tests/mutants")) {
    if (entry.path().extension() != ".txt") continue;
    ++tables;
    EXPECT_TRUE(std::filesystem::exists(ASHLAR_SOURCE_DIR "/tests" / entry.path().stem())) << entry.path();
  }
  EXPECT_GE(tables, 5);
}

TEST_F(Mutants, AreRefusedWhereTheirTextIsNotThereOnce) {
  const std::string head = "@ LICENSE\n% core - *\n= some_name\n";
  for (const std::string text : {"- not in that file\n", "- the\n", "+ nothing to replace\n"}) {
    const ShellResult result = run("--list", head + text);
    EXPECT_EQ(result.code, 70) << text;
    EXPECT_THAT(result.err, HasSubstr("mutant some_name of LICENSE")) << text;
    EXPECT_THAT(result.err, HasSubstr("out of date")) << text;
  }
}

const char* const kLine = "- TERMS AND CONDITIONS FOR USE, REPRODUCTION\n";

TEST_F(Mutants, AreRefusedWhereTheyChangeNothingOrNoTestIsNamed) {
  const std::string same = "+ TERMS AND CONDITIONS FOR USE, REPRODUCTION\n";
  EXPECT_THAT(run("--list", std::string("@ LICENSE\n% core - *\n= some_name\n") + kLine + same).err,
              HasSubstr("changes nothing"));
  EXPECT_THAT(run("--list", std::string("@ LICENSE\n= some_name\n") + kLine).err, HasSubstr("no test is named"));
  EXPECT_THAT(run("--list", std::string("@ LICENSE\n% core\n= some_name\n") + kLine).err,
              HasSubstr("no test is named"));
}

// A pattern is looked for in the functions of one name, whatever its line breaks.
TEST_F(Mutants, NameAFunctionAndAPatternInsideIt) {
  std::filesystem::create_directories(scratch_.path() / "src");
  const std::string source =
      "int twice(int x);\n\nstruct A {\n  A() : y_(2) {}\n  int twice(int x) const {\n    if (x > y_) {\n      return "
      "2 * x;"
      "  // a }\n    }\n    return add(x,\n               x);\n  }\n  int once() const { return 2 * y_; }\n  int "
      "y_;\n};\n\n"
      "int thrice(int x) {\n  const auto more = [&](int by) {\n    return x + by;\n  };\n  return more(2 * x);\n}\n";
  std::ofstream(scratch_.file("src/a.cpp")) << source;
  const auto mutated = [&](const std::string& lines) {
    const std::string file = shell_quote(scratch_.file("src/a.cpp")), folder = shell_quote(scratch_.file("m"));
    std::ofstream(scratch_.file("m.txt")) << "@ a.cpp\n% core - *\n= m\n" << lines;
    const ShellResult result =
        run_shell("work=" + shell_quote(scratch_.path().string()) + "\n. " +
                  shell_quote(ASHLAR_SOURCE_DIR "/tests/mutants/tables.sh") + "\nread_tables " +
                  shell_quote(scratch_.file("m.txt")) + " >/dev/null\nmutate " + file + " \"$work/table/m\"\n");
    return result.code == 0 ? result.out : result.err;
  };
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = source;
    return text.replace(text.find(what), what.size(), instead);
  };
  EXPECT_EQ(mutated(": twice\n- 2 * x\n+ 3 * x\n"), with("2 * x;", "3 * x;"));
  EXPECT_EQ(mutated(": twice\n- add(x, x)\n+ x\n"), with("add(x,\n               x)", "x"));
  EXPECT_EQ(mutated(": once\n- 2 *\n"), with("2 * y_", " y_"));
  EXPECT_EQ(mutated(": thrice\n- 2 * x\n+ x\n"), with("more(2 * x)", "more(x)"));
  EXPECT_EQ(mutated(": more\n- x + by\n+ by\n"), with("x + by", "by"));
  EXPECT_EQ(mutated(": A\n- y_(2)\n+ y_(3)\n"), with("y_(2)", "y_(3)"));
  EXPECT_THAT(mutated(": twice\n- return\n"), HasSubstr("does not stand exactly once in twice"));
  EXPECT_THAT(mutated(": once\n- 2 * x\n"), HasSubstr("does not stand exactly once in once"));
  EXPECT_THAT(mutated(": add\n- x\n"), HasSubstr("the file has no function add"));
  EXPECT_THAT(mutated(": y_\n- 2\n"), HasSubstr("the file has no function y_"));
}

TEST_F(Mutants, ThatAreRelinkedNeedATableThatCanBePlanted) {
  const std::string relink = shell_quote(ASHLAR_SOURCE_DIR "/tests/mutants/relink.sh");
  std::ofstream(scratch_.file("some.txt"))
      << "@ core/base/log.cpp\n% core - *\n= one\n- #include \"core/base/log.h\"\n@ core/base/log.h\n= of_a_header\n"
         "- #pragma once\n@ core/base/log.h core/base/log.cpp\n= of_a_source_of_a_header\n- #pragma once\n";
  const std::string place = "export ASHLAR_BUILD_DIR=" + shell_quote(scratch_.path().string()) +
                            " ASHLAR_MUTANTS=" + shell_quote(scratch_.path().string()) + "\n";
  EXPECT_EQ(run_shell(place + relink).code, 2);
  EXPECT_EQ(run_shell(place + relink + " no_such_table").code, 2);
  EXPECT_EQ(run_shell(place + relink + " some --count 3").code, 2);
  // A build without the programs: nothing is known, and that is said for each.
  const ShellResult all = run_shell(place + relink + " some");
  EXPECT_EQ(all.code, 1) << "one of a header is left";
  EXPECT_THAT(all.out, HasSubstr("0 of 2 mutants caught ("));
  EXPECT_THAT(all.out, HasSubstr("2 skipped"));
  EXPECT_THAT(all.out, HasSubstr("left to mutants.sh: of_a_header \n"));
  const ShellResult only = run_shell(place + relink + " some --only of_a_source_of_a_header");
  EXPECT_EQ(only.code, 0) << only.out << only.err;
  EXPECT_THAT(only.out, ::testing::StartsWith("skipped of_a_source_of_a_header "));
  EXPECT_EQ(run_shell(place + relink + " some --only of_a_header").code, 2);
  EXPECT_EQ(run_shell(place + relink + " some --only none_such").code, 2);
}

TEST_F(Mutants, AreFoundByName) {
  EXPECT_EQ(run("--list --from no_such_name").code, 2);
  EXPECT_EQ(run("--list no_such_table").code, 2);
  const std::string table = std::string("@ LICENSE\n% core - *\n= some_name\n") + kLine;
  EXPECT_EQ(run("--list --only some_name", table).out, "some_name LICENSE\n");
  EXPECT_EQ(run("--list --only other_name", table).code, 2);
}

TEST_F(Mutants, TakeTheRunsOfTheirTableOrTheirOwn) {
  const std::string table =
      "@ LICENSE\n% core - A*\n% data - B*\n= both\n- TERMS AND CONDITIONS FOR USE, REPRODUCTION\n"
      "= own\n% hf - C*\n- TERMS AND CONDITIONS FOR USE, REPRODUCTION\n"
      "@ LICENSE\n% mpi 2 D*\n= ranks 4 8\n- TERMS AND CONDITIONS FOR USE, REPRODUCTION\n";
  ASSERT_EQ(run("--list", table).code, 0);
  const auto runs = [&](const std::string& name) {
    std::ifstream in(scratch_.path() / "mutants-list/table" / name / "runs");
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(runs("both"), "core - A*\ndata - B*\n");
  EXPECT_EQ(runs("own"), "hf - C*\n");
  EXPECT_EQ(runs("ranks"), "mpi 4 D*\nmpi 8 D*\n");
}

// What one run of tests says about a mutant, with programs that stand in for the mutant and for what it was made from.
class Verdicts : public ::testing::Test {
 protected:
  /// `mutant` and `original` are what the test program does in bash, inside a test that is named T.one; what
  /// begins with `nothing` is before it.
  std::string verdict(const std::string& mutant, const std::string& original = "pass") {
    const std::string begin =
        "#!/bin/bash\nfail() { echo 'x.cpp:1: Failure'; echo '[  FAILED  ] T.one (0 ms)'; exit 1; }\n"
        "pass() { echo '[       OK ] T.one (0 ms)'; echo '[  PASSED  ] 1 test.'; }\n"
        "start() { echo '[ RUN      ] T.one'; }\nnothing() { exit 3; }\n"
        "nothing_once() { [ -e \"$1\" ] || { touch \"$1\"; nothing; }; }\n";
    std::filesystem::create_directories(scratch_.path() / "tree/build/tests");
    std::filesystem::create_directories(scratch_.path() / "baseline");
    for (const auto& [file, body] :
         {std::pair{"tree/build/tests/test_some", mutant}, {"baseline/test_some", original}}) {
      const std::filesystem::path path = scratch_.path() / file;
      std::ofstream(path) << begin << (body.starts_with("nothing") ? "" : "start; ") << body << "\n";
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    const ShellResult result = run_shell(
        "set -euo pipefail\nroot=" + shell_quote(ASHLAR_SOURCE_DIR) +
        "\nwork=" + shell_quote(scratch_.path().string()) +
        "\ntree=$work/tree\n. $root/launch/scripts/common.sh\n. $root/tests/mutants/outcome.sh\nspare_seconds=0\n"
        "limits['some - *']=1\nverdict=MISSED how=\npasses some - '*' || true\necho \"$verdict\"\n");
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  testing::ScratchDir scratch_;
};

TEST_F(Verdicts, OnlyWhatTheMutantDoesCounts) {
  EXPECT_EQ(verdict("pass"), "MISSED\n");
  EXPECT_EQ(verdict("fail"), "caught\n");
  EXPECT_EQ(verdict("kill -SEGV $$"), "crash\n");
  EXPECT_EQ(verdict("sleep 60"), "hang\n");
}

TEST_F(Verdicts, WhatHappensWithoutTheMutantTooIsNoProof) {
  for (const char* both : {"fail", "kill -SEGV $$", "nothing"}) EXPECT_EQ(verdict(both, both), "BROKEN\n") << both;
  EXPECT_EQ(verdict("sleep 60", "sleep 60"), "BROKEN\n");
}

TEST_F(Verdicts, ACrashThatDoesNotComeBackIsNoProof) {
  const std::string once = scratch_.file("once");
  EXPECT_EQ(verdict("if [ -e " + once + " ]; then pass; else touch " + once + "; kill -SEGV $$; fi"), "BROKEN\n");
  // What runs the tests is missing: no test begins.
  EXPECT_EQ(verdict("pass", "nothing"), "MISSED\n");
  EXPECT_EQ(verdict("nothing"), "BROKEN\n");
}

TEST_F(Verdicts, ARunWithoutATestIsTriedOnceMore) {
  const std::string once = scratch_.file("once"), first = "nothing_once " + once + "; start; ";
  EXPECT_EQ(verdict("fail", first + "pass"), "caught\n");
  std::filesystem::remove(once);
  EXPECT_EQ(verdict(first + "fail"), "caught\n");
}

}  // namespace
}  // namespace ashlar
