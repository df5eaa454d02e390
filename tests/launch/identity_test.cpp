// A run is its configuration and what its data holds; where things lie is nobody's business.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "core/base/strings.h"
#include "launch/training/run_identity.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

class Identity : public ::testing::Test {
 protected:
  // Six steps on `data`, saved at steps 3 and 6.
  void SetUp() override {
    write_text("other.txt", "the wall ");
    write_text("third.txt", "mortar so true ");
    must("train tiny.toml train.steps=6 run.dir=run");
  }
  void write_text(const char* name, const std::string& words) const {
    std::string text = run_.read("text.txt");
    for (size_t i = 0; i + words.size() < text.size(); i += 97) text.replace(i, words.size(), words);
    run_.write(name, text);
  }
  ShellResult ashlar(const std::string& words) const { return run_.ashlar(words); }
  std::string must(const std::string& words) const {
    const ShellResult r = ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r.out;
  }
  void refused(const std::string& words, const std::vector<std::string>& expected) const {
    const ShellResult r = ashlar(words);
    EXPECT_EQ(r.code, kInput) << words << "\n" << r.out << r.err;
    for (const std::string& word : expected)
      EXPECT_NE(r.err.find(word), std::string::npos) << "no " << word << " in " << r.err;
    EXPECT_EQ(r.out.find("layer"), std::string::npos) << "refused before the tables: " << r.out;
  }
  void shell(const std::string& script) const {
    const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + " && " + script);
    ASSERT_EQ(r.code, 0) << script << r.err;
  }
  void rebuild(const std::string& text, const std::string& options = "") const {
    must("data build " + text + " --out data --overwrite " + options);
  }
  // All losses of two runs, however often either was stopped.
  void expect_same_losses(const std::string& a, const std::string& b) const {
    EXPECT_GE(run_.metric(a, "loss").size(), 8U);
    EXPECT_EQ(run_.metric(a, "loss"), run_.metric(b, "loss"));
  }
  RunFixture run_;
};

constexpr const char* kGoOn = "train tiny.toml train.steps=9 run.dir=run";

TEST_F(Identity, TheSameTokensAreTheSameDataWhereverTheyLie) {
  shell("cp -r data kept && cp -r data moved");
  fs::remove_all(run_.dir() / "run");
  must("train tiny.toml schedule.kind=constant train.steps=6 run.dir=run");
  fs::remove_all(run_.dir() / "data");
  const std::string constant = " schedule.kind=constant ";
  must(str_cat("train tiny.toml train.steps=7 run.dir=run data.path=moved", constant));
  must(str_cat("train tiny.toml train.steps=8 run.dir=run data.path=", (run_.dir() / "moved").string(), constant));
  fs::remove_all(run_.dir() / "moved");
  shell("sleep 1 && cp text.txt copy.txt");
  must("data build copy.txt --out data --threads 1");
  must(str_cat(kGoOn, constant));
  must(str_cat("train tiny.toml train.steps=9 run.dir=whole data.path=kept", constant));
  expect_same_losses("run", "whole");
}

TEST_F(Identity, OtherTokensAtTheSamePathAreRefused) {
  rebuild("other.txt");
  refused(kGoOn, {"data.path = data: the tokens differ", "run.dir", "data.allow_change = true"});
  const std::string out = must(str_cat(kGoOn, " data.allow_change=true"));
  EXPECT_NE(out.find("as data.allow_change permits: data.path = data: the tokens differ"), std::string::npos) << out;
  // The newest checkpoint knows the new data: nothing is to be permitted any more.
  must("train tiny.toml train.steps=10 run.dir=run");
  rebuild("text.txt");
  refused("train tiny.toml train.steps=12 run.dir=run", {"the tokens differ"});
}

TEST_F(Identity, AnotherTokenizerOfTheSameSizeIsRefused) {
  // Two character sets of equal size: ids mean other letters.
  run_.write("abc.txt", "abcabcabdabcdabcabcabdabcdabcabcabdabcd\nabcabcabdabcdabcabcabdabcdabcabcabdabcdabcabcabd");
  run_.write("abe.txt", "abeabeabdabedabeabeabdabedabeabeabdabed\nabeabeabdabedabeabeabdabedabeabeabdabedabeabeabd");
  must("data build abc.txt --out letters --tokenizer characters");
  must("train tiny.toml train.steps=6 run.dir=l data.path=letters");
  must("data build abe.txt --out letters --tokenizer characters --overwrite");
  refused("train tiny.toml train.steps=9 run.dir=l data.path=letters",
          {"data.path = letters: tokenizer and tokens differ", "data.allow_change"});
  // As weights to begin from, only the tokenizer counts.
  refused("train tiny.toml train.steps=6 run.dir=n data.path=letters run.init_from=l",
          {"data.path = letters: the tokenizer differs", "run.init_from = l"});
  refused("train tiny.toml train.steps=6 run.dir=n run.init_from=l", {"data.path = data: the tokenizer differs"});
  must("train tiny.toml train.steps=6 run.dir=n data.path=letters run.init_from=l data.allow_change=true");
  must("train tiny.toml train.steps=6 run.dir=m run.init_from=run");
}

TEST_F(Identity, SourcesOfAMixtureKeepNumberOrderAndWeights) {
  must("data build other.txt --out b");
  const auto mixture = [](const std::string& first, const std::string& second) {
    return str_cat(" 'data.path=[", first, ", ", second, "]'");
  };
  const std::string a = "{path=\"data\", weight=3}", b = "{path=\"b\", weight=1}";
  const std::string run = "train tiny.toml run.dir=mix train.steps=";
  must(str_cat(run, "6", mixture(a, b)));
  refused(str_cat(run, "7", mixture(b, a)), {"data.path: expected the sources in the order of the run"});
  refused(str_cat(run, "7 data.path=data"), {"data.path: 1 source, expected 2, as in the run"});
  refused(str_cat(run, "7", mixture(a, "{path=\"b\", weight=2}")), {"data.path[0] = data", "data.path[1] = b", "0.25"});
  refused(str_cat(run, "7", mixture(a, "{path=\"data\", weight=1}")), {"data.path[1] = data: the tokens differ"});
  must(str_cat(run, "7", mixture("{path=\"./data\", weight=6}", "{path=\"b\", weight=2}")));
  must(str_cat(run, "8 data.path=data data.allow_change=true"));
  must("data build text.txt --out chars --tokenizer characters");
  refused(str_cat("train tiny.toml run.dir=new", mixture(a, "{path=\"chars\", weight=1}")),
          {"data.path: expected sources with one tokenizer", "in data and characters", "in chars"});
}

TEST_F(Identity, ACheckpointOfTheOldFormGoesOnWithOneWarning) {
  const std::string from = ASHLAR_SOURCE_DIR "/tests/launch/golden/old_run";
  shell(str_cat("cp -r ", shell_quote(from), " old && chmod -R u+w old"));
  must("data build old/text.txt --out old-data --tokenizer characters");
  const std::string go_on = "train old/tiny.toml run.dir=old/run data.path=old-data train.steps=";
  const std::string out = must(str_cat(go_on, "8"));
  const size_t at = out.find("cannot check that data.path holds");
  EXPECT_NE(at, std::string::npos) << out;
  EXPECT_EQ(out.find("cannot check that data.path holds", at + 1), std::string::npos) << "once: " << out;
  shell("rm -rf on2 && cp -r " + shell_quote(from) + "/run on2 && chmod -R u+w on2");
  const std::string two =
      must("launch -np 2 train old/tiny.toml run.dir=on2 data.path=old-data train.micro_batch=1 train.steps=8");
  EXPECT_EQ(two.find("cannot check that data.path holds", two.find("cannot check that data.path holds") + 1),
            std::string::npos)
      << "once: " << two;
  // What the version that wrote it would have gone on to: on its machine to the bit, on others but for the rounding of
  // fp32, which changes with the instructions and the compiler's flags. Another batch or moment would change 1e-2.
  shell("mkdir w && cp old/whole.jsonl w/metrics.jsonl");
  const std::vector<double> gone_on = run_.metric("old/run", "loss"), whole = run_.metric("w", "loss");
  ASSERT_EQ(gone_on.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(gone_on[i], whole[i], 1e-4) << "step " << i + 1;
  EXPECT_EQ(must(str_cat(go_on, "9")).find("cannot check that data.path holds"), std::string::npos)
      << "its new checkpoints do tell";
  // Its tokenizer it does know.
  shell(str_cat("rm -rf old && cp -r ", shell_quote(from), " old && chmod -R u+w old"));
  std::string other = run_.read("old/text.txt");
  std::replace(other.begin(), other.end(), 'm', 'z');
  run_.write("xyz.txt", other);
  must("data build xyz.txt --out xyz --tokenizer characters");
  refused("train old/tiny.toml run.dir=old/run data.path=xyz train.steps=8",
          {"data.path = xyz: the tokenizer differs"});
}

// A damaged configuration in a checkpoint is an error as any other.
TEST(IdentityOfForms, OfACheckpointWhoseConfigurationCannotBeRead) {
  checkpoint::Manifest manifest;
  manifest.config_toml = "[model]\nd_model = \"wide\"\n";
  manifest.tokenizer_json = std::string(100, 't');
  manifest.data = {{.tokenizer = std::string(100, 't'), .tokens = std::string(100, 'k')}};
  EXPECT_THROW(training::check_continuation("run/checkpoints/step-4", manifest, {.config = config::RunConfig{}}),
               Error);
}

// Digests of a dataset of the old form and of a new one are of different kinds: no change can be claimed, nor ruled
// out.
TEST(IdentityOfForms, OldAndNewTokensCannotBeCompared) {
  const config::RunConfig config =
      config::resolve(config::parse_config("[model]\nd_model = 8\nn_layers = 1\nn_heads = 2\n[train]\nsteps = 4\n"
                                           "sequence_length = 8\nglobal_batch = 2\n[optimizer]\nlr = 1e-3\n[data]\n"
                                           "path = \"data\"\n",
                                           "x.toml", {}),
                      {.dataset_vocab_size = 9})
          .config;
  const auto check = [&](const std::string& before, const std::string& after, const std::string& tokenizer = "t") {
    training::Origin origin{.path = "run/checkpoints/step-4", .config = config};
    origin.manifest.data = {{.tokenizer = "t", .tokens = before}};
    const checkpoint::DataRecord now{.tokenizer = tokenizer, .tokens = after};
    return training::check_continuation(origin, {.config = config, .data = {&now, 1}});
  };
  EXPECT_TRUE(check("aa", "aa").warnings.empty());
  EXPECT_TRUE(check("old:aa", "old:aa").warnings.empty());
  for (const auto& [before, after] : {std::pair("old:aa", "bb"), std::pair("aa", "old:bb")}) {
    ASSERT_EQ(check(before, after).warnings.size(), 1U);
    EXPECT_NE(check(before, after).warnings[0].find("cannot check that data.path holds"), std::string::npos);
    EXPECT_THROW(check(before, after, "other"), config::ConfigError) << "tokenizers always can";
  }
  EXPECT_THROW(check("old:aa", "old:bb"), config::ConfigError);
  EXPECT_THROW(check("aa", "bb"), config::ConfigError);
}

TEST_F(Identity, InitFromTakesTheModelOfItsCheckpoint) {
  must(
      "train tiny.toml train.steps=6 run.dir=base rope.base=500 norm.eps=1e-3 ffn.act=relu model.d_ff=32 "
      "vocab.size=300");
  // A configuration without any model key.
  shell("sed '/^\\[model\\]/,/^d_ff/d; /^d_model/d' tiny.toml >open.toml && ! grep -q d_model open.toml");
  const std::string out = must("train open.toml train.steps=6 run.dir=next run.init_from=base log.verbose=true");
  for (const char* taken :
       {"rope.base = 500.0 (from base/checkpoints/step-00000006)", "model.d_ff = 32 (from ", "vocab.size = 300 (from "})
    EXPECT_NE(out.find(str_cat("derived: ", taken)), std::string::npos) << taken << " in " << out;
  for (const char* line : {"base = 500.0", "eps = 0.001", "act = \"relu\"", "d_ff = 32", "size = 300"})
    EXPECT_NE(run_.read("next/config.toml").find(line), std::string::npos) << line;
  // Continued with the same words, also once the checkpoint has gone, and never with another model.
  must("train open.toml train.steps=7 run.dir=next run.init_from=base");
  shell("mv base gone");
  must("train open.toml train.steps=8 run.dir=next run.init_from=base");
  refused("train open.toml train.steps=9 run.dir=next run.init_from=base norm.eps=0.1",
          {"norm.eps = 0.1: expected 0.001"});
  // The path may be a checkpoint.
  must("train open.toml train.steps=6 run.dir=third run.init_from=gone/checkpoints/step-00000006");
  refused("train open.toml train.steps=6 run.dir=fourth run.init_from=base", {"run.init_from = base", "got none"});
}

TEST_F(Identity, InitFromWithAnotherModelIsRefusedKeyByKey) {
  refused(
      "train tiny.toml train.steps=6 run.dir=n run.init_from=run norm.eps=0.1 rope.base=5 rope.style=interleaved "
      "ffn.act=relu attn.scale=0.1 model.d_ff=32",
      {"norm.eps = 0.1: expected 1e-05, the value in run/checkpoints/step-00000006", "rope.base = 5.0: expected 10000",
       "rope.style = \"interleaved\": expected \"half\"", "ffn.act = \"relu\": expected \"silu\"",
       "attn.scale = 0.1: expected 0.35", "model.d_ff = 32: expected 24"});
  must("train tiny.toml train.steps=6 run.dir=own run.init_from=run dropout.resid=0 init.std=1 loss.z_coef=1e-4");
  const std::string permitted =
      "train tiny.toml train.steps=6 run.dir=p run.init_from=run rope.base=20000 'run.init_change=[\"rope.base\"]'";
  must(permitted);
  EXPECT_NE(run_.read("p/config.toml").find("base = 20000.0"), std::string::npos);
  must(permitted + " train.steps=8");
}

TEST_F(Identity, AnImportTrainsAsItStands) {
  const std::string golden = ASHLAR_SOURCE_DIR "/tests/reference/golden/";
  for (const char* model : {"llama", "gpt2"}) {
    SCOPED_TRACE(model);
    must(str_cat("import ", shell_quote(golden + model), " ", model));
    const std::string config = run_.read(str_cat(model, "/config.toml"));
    EXPECT_NE(config.find("init_from = \"" + (run_.dir() / model).string() + "\""), std::string::npos) << config;
    std::smatch size;
    ASSERT_TRUE(std::regex_search(config, size, std::regex("\nsize = ([0-9]+)\n"))) << config;
    // Of a vocabulary that the model has.
    run_.write("few.txt", std::string(std::stoll(size[1]) > 300 ? run_.read("text.txt")
                                                                : "abcd\nabca\n" + std::string(3000, 'b')));
    must(str_cat("data build few.txt --out few --overwrite --tokenizer characters"));
    const std::string out = must(str_cat("train ", model,
                                         "/config.toml data.path=few train.steps=2 schedule.warmup_steps=0 "
                                         "run.dir=from-",
                                         model, " train.sequence_length=16 train.global_batch=2"));
    EXPECT_NE(out.find("was imported without a tokenizer"), std::string::npos) << out;
    EXPECT_NE(out.find("weights from "), std::string::npos) << out;
    must(str_cat("params ", model, "/config.toml"));
  }
}

}  // namespace
}  // namespace ashlar::testing
