// Names and bytes from outside in messages of the program: none of them may act on a terminal or begin a line of its
// own.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

// Clears the screen, forges an error, turns the direction of writing.
const std::string kEvil = "x\x1b[2J\x07\nashlar: forged\r\xe2\x80\xae.y";

struct Case {
  std::string what;
  std::string command;  ///< $E is the evil text
  std::string config;   ///< evil.toml
};

class ForeignText : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(run_.dir() / kEvil);
    run_.write(kEvil + "/manifest.json", "{\"format\": \"" + std::string("a\\u001b[2J") + "\"}");
    run_.write(kEvil + "/config.json", "{\"model_type\": \"a\\u001b[2J\\nashlar: forged\"}");
    run_.write(kEvil + "/tokenizer.json", "{\"a\\u001b[2J\\nashlar: forged\": 1}");
    run_.write("a" + kEvil + ".txt", "text\n");
    run_.write("bad" + kEvil + ".txt", "\xff\xfe\xff");
    // A NumPy file whose header names a type that acts.
    const std::string header = "{'descr': '" + kEvil + "', 'fortran_order': False, 'shape': (4,), }\n";
    std::string npy = std::string("\x93NUMPY\x01\x00", 8);
    npy += static_cast<char>(header.size());
    npy += '\0';
    run_.write("bad.npy", npy + header + "12345678");
    run_.write("hosts", "a" + std::string("\x1b[2J") + " slots=x\n");
  }

  RunFixture run_;
};

TEST_F(ForeignText, NeitherActsOnATerminalNorBeginsALine) {
  const std::string base = run_.read("tiny.toml");
  const std::vector<Case> cases = {
      {"a command", "\"$E\"", ""},
      {"a subcommand", "data \"$E\"", ""},
      {"a subcommand of the tokenizer", "tokenizer \"$E\"", ""},
      {"a bench", "bench \"$E\"", ""},
      {"an option", "train tiny.toml \"--$E\"", ""},
      {"a number", "data inspect data --tokens \"$E\"", ""},
      {"an override's value", "train tiny.toml \"train.steps=$E\"", ""},
      {"an override's key", "train tiny.toml \"train.$E=1\"", ""},
      {"a configuration's name", "train \"$E.toml\"", ""},
      {"a key", "train evil.toml", "[train]\n\"a\\u001b[2J\\nashlar: forged\" = 1\n"},
      {"a section", "train evil.toml", "[\"a\\u001b[2J\\nashlar: forged\"]\nx = 1\n"},
      {"a value", "train evil.toml", "[run]\ndevice = \"a\\u001b[2J\\nashlar: forged\"\n"},
      {"a line that is no TOML", "train evil.toml", "[run\x1b[2J\x07\n"},
      {"a dataset", "train tiny.toml \"data.path=$E\"", ""},
      {"a dataset that is not there", "data verify \"no$E\"", ""},
      {"a run directory", "train tiny.toml \"run.dir=tiny.toml/$E\"", ""},
      {"a checkpoint", "eval \"$E\"", ""},
      {"a checkpoint to generate from", "generate \"no$E\"", ""},
      {"a hub model", "import \"$E\" out", ""},
      {"a hub model to train from", "train --from \"$E\" data.path=data run.dir=r", ""},
      {"a tokenizer", "tokenizer info \"$E\"", ""},
      {"an input that is no text", "data build \"bad$E.txt\" --out d1", ""},
      {"an input that is not there", "data build \"no$E\" --out d2", ""},
      {"an output that is there", "data build text.txt --out \"$E\"", ""},
      {"an array", "data build bad.npy --tokenizer bytes --out d3", ""},
      {"a model of the zoo", "zoo \"$E\"", ""},
      {"a key to explain", "explain \"$E\"", ""},
      {"a hostfile", "launch -np 2 --hostfile hosts train tiny.toml", ""},
      {"a command to launch", "launch -np 2 \"$E\"", ""},
      {"an export", "export \"no$E\" out2", ""},
  };
  for (const Case& c : cases) {
    run_.write("evil.toml", base + c.config);
    const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + "\nE=" + shell_quote(kEvil) + "\n" +
                                    shell_quote(ASHLAR_BINARY) + " " + c.command + " </dev/null");
    EXPECT_EQ(r.code, 2) << c.what << "\n" << r.err;
    EXPECT_FALSE(r.err.empty()) << c.what;
    for (const std::string& text : {r.out, r.err}) {
      for (const char byte : text) {
        EXPECT_TRUE(static_cast<uint8_t>(byte) >= 0x20 || byte == '\n') << c.what << ": " << static_cast<int>(byte);
      }
      EXPECT_EQ(text.find("\xe2\x80\xae"), std::string::npos) << c.what;
      EXPECT_EQ(("\n" + text).find("\nashlar: forged"), std::string::npos) << c.what << "\n" << text;
    }
  }
}

TEST_F(ForeignText, ResultsOfADatasetAreWithoutIt) {
  const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + "\nE=" + shell_quote(kEvil) +
                                  "\nA=" + shell_quote(ASHLAR_BINARY) +
                                  "\n$A data build text.txt --out \"d$E\" && $A data inspect \"d$E\" && "
                                  "$A data verify \"d$E\"");
  EXPECT_EQ(r.code, 0) << r.err;
  for (const std::string& text : {r.out, r.err}) {
    for (const char byte : text) EXPECT_TRUE(static_cast<uint8_t>(byte) >= 0x20 || byte == '\n') << text;
    EXPECT_EQ(("\n" + text).find("\nashlar: forged"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ashlar::testing
