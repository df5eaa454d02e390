// TOML that nobody wrote by hand: too deep, too long, damaged.
#include "launch/config/toml_text.h"

#include <fstream>

#include "core/io/json.h"
#include "tests/config/fixture.h"
#include "tests/support/cpu_time.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::config::testing {
namespace {

std::string repeated(const std::string& text, int64_t times) {
  std::string all;
  for (int64_t i = 0; i < times; ++i) all += text;
  return all;
}

// One limit, and one error, before anything that calls itself once a level sees the text.
TEST(TomlText, DeepNestingIsRefused) {
  for (const int64_t n : {300, 100'000}) {
    const std::string dots = repeated("a.", n) + "b";
    for (const std::string& text :
         {dots + " = 1\n", "[" + dots + "]\n", "[[" + dots + "]]\nx = 1\n", "[log]\n" + dots + " = 1\n",
          "x = {" + dots + " = 1}\n", "x = " + repeated("[", n) + repeated("]", n) + "\n",
          "x = " + repeated("{a = ", n) + "1" + repeated("}", n) + "\n",
          "x = " + repeated("[{a.b = ", n) + "1" + repeated("}]", n) + "\n", "x = " + repeated("[\n", n),
          repeated("\"a\" . ", n) + "b = 1\n", "s = \"\"\"\n\\\" ' \"\"\"\n" + dots + " = 1\n"}) {
      const std::vector<std::string> errors = errors_of({}, kMinimal + text);
      ASSERT_EQ(errors.size(), 1U) << text.substr(0, 40);
      EXPECT_NE(errors[0].find("levels"), std::string::npos) << errors[0];
      EXPECT_LT(errors[0].size(), 400U);
    }
  }
  const std::string deep = repeated("[", 100'000);
  EXPECT_EQ(errors_of({"train.steps=" + deep, "attn.window_cycle=" + deep}).size(), 2U);
  const std::string dots = repeated("a.", 100'000) + "b=1";
  EXPECT_EQ(errors_of({dots, "train.steps={" + dots + "}"}).size(), 2U);
  // Dots elsewhere are no levels.
  const std::string many = repeated("....", 200);
  EXPECT_TRUE(errors_of({}, kMinimal + ("# " + many + "\n")).empty());
  EXPECT_TRUE(errors_of({}, kMinimal + ("[run]\ndir = \"" + many + "\" # \"" + many + "\n")).empty());
  EXPECT_TRUE(errors_of({}, kMinimal + ("[run]\ndir = '''\n" + many + "'''\n")).empty());
  EXPECT_FALSE(too_deep("x = [" + repeated("1.5, ", 1000) + "]\n" + repeated("a.b = 1.0\n", 1000)));
  EXPECT_EQ(too_deep("a = 1\n\n" + repeated("b.", 201) + "c = 2"), 2U);
  EXPECT_FALSE(too_deep(repeated("b.", io::kMaxJsonDepth) + "c = 2"));
}

TEST(TomlText, UnknownKeysAndSectionsAreCounted) {
  std::string text = kMinimal;
  const int64_t n = 200'000;
  for (int64_t i = 0; i < n / 2; ++i) text += "[section" + std::to_string(i) + "]\n";
  for (int64_t i = 0; i < n / 2; ++i) text += "[other" + std::to_string(i) + "]\nstesp = 1\n";
  const double begin = ::ashlar::testing::cpu_seconds();
  const std::vector<std::string> errors = errors_of({}, text);
  EXPECT_LT(::ashlar::testing::cpu_seconds() - begin, 20) << "a second, under the sanitizers more";
  ASSERT_EQ(errors.size(), 11U);
  EXPECT_NE(errors[10].find("199990 more"), std::string::npos) << errors[10];
  // One that is known is named beside them.
  text.replace(text.find("steps = 1000"), 12, "steps = 0");
  EXPECT_EQ(errors_of({}, text).size(), 12U);
  // A long name costs no more than a short one, and is cut.
  const std::string name(1 << 20, 'x');
  const std::vector<std::string> named = errors_of({name + "=1", "run." + name + "=2", name},
                                                   std::string(kMinimal) + "[" + name + "]\n" + name + " = 1\n");
  ASSERT_EQ(named.size(), 4U);
  for (const std::string& error : named) EXPECT_LT(error.size(), 600U);
}

TEST(TomlText, WrongSourcesAndValuesAreBounded) {
  const std::string many = repeated("1, ", 200'000);
  const std::vector<std::string> sources = errors_of({"data.path=[" + many + "]"});
  ASSERT_EQ(sources.size(), 11U);
  EXPECT_NE(sources[10].find("199990 later sources"), std::string::npos) << sources[10];
  const std::string word(1 << 20, 'x');
  for (const std::string& wrong : {"init.scheme=" + word, "train.steps=[" + many + "]", "run.init_change=" + word}) {
    const std::vector<std::string> errors = errors_of({"run.init_from=x", wrong});
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_LT(errors[0].size(), 1000U) << errors[0];
  }
}

// A key or a value must not write lines of its own onto the terminal.
TEST(TomlText, MessagesAreOneLineOfPlainText) {
  for (const std::string& text : {std::string("\"a\\nstep 1\" = 1\n"), std::string("[\"b\\u001b[2J\"]\n"),
                                  std::string("[log]\n\"c\\u202e\" = 1\n"), std::string("what \x1b[31m is\n"),
                                  std::string("[init]\nscheme = \"x\\n\\u202e\\u001b\"\n")}) {
    const std::vector<std::string> errors = errors_of({"\nx.y=1", "\x1b=2", "no\x07ne"}, kMinimal + text);
    EXPECT_EQ(errors.size(), 4U);
    for (const std::string& error : errors) {
      for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 0x20U) << error;
      EXPECT_EQ(error.find("\xe2\x80\xae"), std::string::npos) << error;
    }
  }
}

TEST(TomlText, AFileThatIsNoConfigurationIsNotReadWhole) {
  const ::ashlar::testing::ScratchDir dir;
  std::ofstream(dir.file("big.toml")) << std::string((16 << 20) + 1, '\n');
  try {
    read_config(dir.file("big.toml"), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_NE(std::string(e.what()).find("at most 16777216 bytes"), std::string::npos) << e.what();
  }
}

// Any damage is read, or is an input error of plain lines: never a bug, never a crash, never long.
TEST(TomlText, DamagedTextsAreReadOrRefused) {
  const std::string whole = to_toml(resolved({"data.path=[{path='a', weight=3}, {path='b'}]"}).config);
  ::ashlar::testing::expect_bounded({.inputs = {whole, kMinimal}, .trials = 300}, [](const std::string& text) {
    try {
      resolve(parse_config(text, "test.toml", {}), facts());
    } catch (const ConfigError& e) {
      EXPECT_LT(std::string(e.what()).size(), 100'000U);
      for (const std::string& error : e.errors())
        EXPECT_EQ(error.find_first_of("\n\r\x1b"), std::string::npos) << error;
      throw input_error("config", e.errors().front());
    }
  });
}

}  // namespace
}  // namespace ashlar::config::testing
