// `ashlar completions`: the scripts, asked by the shells themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::packaging {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

bool installed(const char* shell) { return run_shell(std::string("command -v ") + shell).code == 0; }

// A folder with the script of a shell and a file to complete.
class Completions : public ::testing::Test {
 protected:
  void write(const std::string& shell) {
    const ShellResult script = run_shell(shell_quote(ASHLAR_BINARY) + " completions " + shell);
    ASSERT_EQ(script.code, 0) << script.err;
    std::ofstream(scratch_.file("script")) << script.out;
    std::ofstream(scratch_.file("tiny.toml")) << "";
  }
  // The lines that a shell prints in the folder.
  Words lines(const std::string& shell, const std::string& script) const {
    const ShellResult result =
        run_shell("cd " + shell_quote(scratch_.path().string()) + " && " + shell + " " + shell_quote(script));
    EXPECT_EQ(result.code, 0) << script << "\n" << result.err;
    EXPECT_EQ(result.err, "") << script;
    std::istringstream stream(result.out);
    Words words;
    for (std::string line; std::getline(stream, line);)
      if (!line.empty()) words.push_back(line);
    return words;
  }
  // What bash proposes at the end of a command line.
  Words bash(const std::string& line) const {
    return lines("bash --norc -c", ". ./script\nCOMP_LINE=" + shell_quote(line) +
                                       " COMP_POINT=${#COMP_LINE}\n_ashlar\nprintf '%s\\n' \"${COMPREPLY[@]}\"");
  }
  // What zsh proposes, its builtins for completion replaced by ones that print.
  Words zsh(const std::string& line) const {
    return lines(
        "zsh -f -c",
        "compdef() { :; }; compset() { :; }; _files() { print -- FILES; }\n"
        "compadd() { while [[ $1 != -- ]]; do shift; done; shift; (( $# )) && print -l -- \"$@\"; return 0; }\n"
        ". ./script\nwords=(\"${(@s: :)line::=" +
            shell_quote(line) + "}\") CURRENT=${#words}\n_ashlar\ntrue");
  }
  // What fish proposes; descriptions are cut off.
  Words fish(const std::string& line) const {
    return lines("HOME=$PWD fish --no-config -c",
                 "source ./script; complete -C " + shell_quote(line) + " | string replace -r '\\t.*' ''; true");
  }

  testing::ScratchDir scratch_;
};

TEST_F(Completions, OfBash) {
  write("bash");
  EXPECT_THAT(bash("ashlar trai"), ElementsAre("train"));
  EXPECT_THAT(bash("ashlar --v"), ElementsAre("--version"));
  EXPECT_THAT(bash("ashlar tokenizer "), ::testing::IsSupersetOf({"info", "encode", "decode", "train", "tiny.toml"}));
  EXPECT_THAT(bash("ashlar data build --fo"), ElementsAre("--format"));
  EXPECT_THAT(bash("ashlar data inspect --fo"), IsEmpty()) << "an option of data build";
  EXPECT_THAT(bash("ashlar data build tiny.toml --bad-lines "), ElementsAre("stop", "skip", "replace"));
  EXPECT_THAT(bash("ashlar data build --out "), IsEmpty()) << "left to the files of readline";
  EXPECT_THAT(bash("ashlar bench comm --dtype "), ElementsAre("fp32", "bf16", "fp64"));
  EXPECT_THAT(bash("ashlar bench comm --in"), ElementsAre("--in-flight"));
  EXPECT_THAT(bash("ashlar train ti"), ElementsAre("tiny.toml"));
  EXPECT_THAT(bash("ashlar launch -np 2 --restarts 3 trai"), ElementsAre("train"));
  EXPECT_THAT(bash("ashlar launch --re"), ElementsAre("--restarts"));
  EXPECT_THAT(bash("ashlar launch -np 2 train --res"), ElementsAre("--restart"));
}

TEST_F(Completions, OfKeysInBash) {
  write("bash");
  EXPECT_THAT(bash("ashlar train tiny.toml mes"), ElementsAre("mesh."));
  EXPECT_THAT(bash("ashlar launch -np 2 train tiny.toml mesh.sc"), ElementsAre("mesh.schedule="));
  EXPECT_THAT(bash("ashlar train tiny.toml mesh.schedule="), ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1"));
  EXPECT_THAT(bash("ashlar train tiny.toml mesh.schedule=1"), ElementsAre("1f1b"));
  EXPECT_THAT(bash("ashlar train tiny.toml mesh.sequence_parallel=t"), ElementsAre("true"));
  EXPECT_THAT(bash("ashlar train tiny.toml data.path="), IsEmpty());
  EXPECT_THAT(bash("ashlar eval DIR run."), ElementsAre("run.device="));
  EXPECT_THAT(bash("ashlar upcycle DIR OUT m"), ElementsAre("moe."));
  EXPECT_THAT(bash("ashlar explain mesh.sc"), ElementsAre("mesh.schedule"));
  EXPECT_THAT(bash("ashlar explain mesh.sc"), Not(Contains("mesh.schedule=")));
}

// A user's COMP_WORDBREAKS may lack the =, and then the whole word is replaced.
TEST_F(Completions, OfKeysInBashWithOtherWordBreaks) {
  write("bash");
  EXPECT_THAT(lines("bash --norc -c",
                    ". ./script\nCOMP_WORDBREAKS=' '\nCOMP_LINE='ashlar train x mesh.schedule=g' "
                    "COMP_POINT=${#COMP_LINE}\n_ashlar\nprintf '%s\\n' \"${COMPREPLY[@]}\""),
              ElementsAre("mesh.schedule=gpipe"));
}

TEST_F(Completions, OfZsh) {
  if (!installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  write("zsh");
  EXPECT_THAT(zsh("ashlar trai"), Contains("train"));
  EXPECT_THAT(zsh("ashlar data build --bad-lines "), UnorderedElementsAre("stop", "skip", "replace"));
  EXPECT_THAT(zsh("ashlar launch -np 2 train tiny.toml mesh.sc"), Contains("mesh.schedule="));
  EXPECT_THAT(zsh("ashlar train tiny.toml mesh.schedule="),
              UnorderedElementsAre("mesh.schedule=gpipe", "mesh.schedule=1f1b", "mesh.schedule=interleaved",
                                   "mesh.schedule=zb-h1", "FILES"));
}

TEST_F(Completions, OfFish) {
  if (!installed("fish")) GTEST_SKIP() << "fish is not installed";
  write("fish");
  EXPECT_THAT(fish("ashlar trai"), ElementsAre("train"));
  EXPECT_THAT(fish("ashlar data build --bad-lines "), UnorderedElementsAre("stop", "skip", "replace"));
  EXPECT_THAT(fish("ashlar tokenizer en"), ElementsAre("encode"));
  EXPECT_THAT(fish("ashlar launch -np 2 trai"), ElementsAre("train"));
  EXPECT_THAT(fish("ashlar launch -np 2 train tiny.toml mesh.sc"), ElementsAre("mesh.schedule="));
  EXPECT_THAT(fish("ashlar train tiny.toml mesh.schedule=z"), ElementsAre("mesh.schedule=zb-h1"));
}

// A help text that omits an option, or names it where no reader finds it, also hides it from the completions.
TEST_F(Completions, HaveEveryOptionThatACommandReads) {
  write("bash");
  const Words all =
      lines("bash --norc -c",
            ". ./script\n_ashlar_options ''\nfor c in $(_ashlar_subcommands ''); do _ashlar_options $c\n"
            "  for s in $(_ashlar_subcommands $c); do _ashlar_options \"$c $s\"; done; done 2>/dev/null; true");
  const std::set<std::string> known(all.begin(), all.end());
  const std::regex read(R"re(\.?\b(flag|option|integer|number|bytes|choice|text_option)\((\w+, )?"(-[-a-z0-9]+)")re");
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASHLAR_SOURCE_DIR "/launch/commands")) {
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator at(text.begin(), text.end(), read), end; at != end; ++at, ++found)
      EXPECT_TRUE(known.contains((*at)[3])) << (*at)[3] << ", which " << entry.path().filename() << " reads";
  }
  EXPECT_GT(found, 80);
}

TEST_F(Completions, RefuseAnotherShell) {
  const ShellResult refused = run_shell(shell_quote(ASHLAR_BINARY) + " completions tcsh");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, ::testing::HasSubstr("expected one word of bash, zsh and fish, got 'tcsh'"));
}

}  // namespace
}  // namespace ashlar::packaging
