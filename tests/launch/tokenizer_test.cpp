// `ashlar tokenizer`: the program's standard input and output, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) { return ASHLAR_SOURCE_DIR "/tests/data/fixtures/" + name; }

std::string joined(const json& ids) { return absl::StrJoin(ids.get<std::vector<int32_t>>(), " "); }

class TokenizerCommand : public ::testing::Test {
 protected:
  ShellResult tokenizer(const std::string& words, const std::string& input = "") const {
    run_.write("input", input);
    return run_.ashlar(str_cat("tokenizer ", words, " < input"));
  }
  void expect_refused(const ShellResult& r, const std::vector<std::string>& parts) const {
    EXPECT_EQ(r.code, 2) << r.out;
    EXPECT_EQ(r.out, "");
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    for (const std::string& part : parts) EXPECT_THAT(r.err, HasSubstr(part));
  }

  const RunFixture run_;
};

TEST_F(TokenizerCommand, EncodesStandardInputToOneLineAndBack) {
  for (const char* name : {"tokenizers/llama2_bpe", "tokenizers/deepseek_split"}) {
    const std::string file = fixture(str_cat(name, ".json"));
    std::ifstream rows(fixture(str_cat(name, ".jsonl")));
    std::string line;
    const int count = testing::under_address_sanitizer() ? 2 : 8;
    for (int i = 0; i < count && std::getline(rows, line); ++i) {
      const json row = json::parse(line);
      SCOPED_TRACE(str_cat(name, " ", row.at("text").dump()));
      const ShellResult encoded = tokenizer("encode " + file, row.at("text"));
      EXPECT_EQ(encoded.code, 0) << encoded.err;
      EXPECT_EQ(encoded.out, joined(row.at("ids")) + "\n");
      const ShellResult with_template = tokenizer("encode --template " + file, row.at("text"));
      EXPECT_EQ(with_template.out, joined(row.at("ids_template")) + "\n");
      EXPECT_NE(with_template.out, encoded.out);
      const ShellResult decoded = tokenizer("decode " + file, encoded.out);
      EXPECT_EQ(decoded.code, 0) << decoded.err;
      EXPECT_EQ(decoded.out, row.at("decoded").get<std::string>());
    }
  }
}

TEST_F(TokenizerCommand, TakesAFileOrAFolderOfEachForm) {
  // vocab.json with merges.txt, a folder; a tiktoken file, and its folder; SentencePiece, a file and its folder.
  for (const auto& [folder, file] : {std::pair("tokenizers-gpt2", "vocab.json"),
                                     {"tokenizers-tiktoken", "ranks.tiktoken"},
                                     {"sentencepiece_bpe_identity", "model.model"}}) {
    const ShellResult by_folder = tokenizer("encode " + fixture(folder), "true stones, laid in courses\n");
    const ShellResult by_file =
        tokenizer(str_cat("encode ", fixture(folder), "/", file), "true stones, laid in courses\n");
    EXPECT_EQ(by_folder.code, 0) << by_folder.err;
    EXPECT_EQ(by_file.out, by_folder.out);
    EXPECT_GT(by_folder.out.size(), 8U);
    EXPECT_THAT(tokenizer(str_cat("info ", fixture(folder))).out, HasSubstr(", vocabulary "));
    EXPECT_EQ(tokenizer(str_cat("decode ", fixture(folder)), by_folder.out).out.substr(0, 11), "true stones");
  }
}

TEST_F(TokenizerCommand, DecodeWritesBytesThatAreNoText) {
  // Ids by commas, brackets and lines; one id of half a character is its byte, and no line end is added.
  const std::string tiktoken = fixture("tokenizers-tiktoken");
  const ShellResult whole = tokenizer("encode " + tiktoken, "\xc3\xa9\xf0\x9f\x98\x80");
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(tokenizer("decode " + tiktoken, whole.out).out, "\xc3\xa9\xf0\x9f\x98\x80");
  std::string bytes;
  std::istringstream ids(whole.out);
  int64_t count = 0;
  for (std::string id; ids >> id; ++count) bytes += tokenizer("decode " + tiktoken, id).out;
  EXPECT_EQ(bytes, "\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_GT(count, 2) << "the tokenizer cuts inside a character";
  EXPECT_EQ(tokenizer("decode " + tiktoken, "[65, 66,\n67]").out, tokenizer("decode " + tiktoken, "65 66 67").out);
  EXPECT_EQ(tokenizer("decode " + tiktoken, "").out, "");
  EXPECT_EQ(tokenizer("encode " + tiktoken, "").out, "\n");
}

TEST_F(TokenizerCommand, TrainsWhatItThenReads) {
  run_.write("corpus.txt", [] {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += str_cat("stone ", i % 7, " laid in courses, cut so true that mortar is none\n");
    return text;
  }());
  struct Row {
    const char *kind, *identity;
    int64_t vocabulary;
  };
  for (const auto& [kind, identity, vocabulary] :
       {Row{"bytes-bpe", "tokenizer.json (byte-level BPE)", 300}, Row{"sentencepiece-bpe", "SentencePiece", 300},
        Row{"sentencepiece-unigram", "SentencePiece", 286}}) {
    SCOPED_TRACE(kind);
    const ShellResult trained =
        run_.ashlar(str_cat("tokenizer train corpus.txt --vocab-size ", vocabulary, " --kind ", kind, " --out ", kind));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::string folder = (run_.dir() / kind).string();
    const ShellResult info = tokenizer("info " + folder);
    EXPECT_THAT(info.out, HasSubstr(identity));
    EXPECT_THAT(info.out, HasSubstr(str_cat(", vocabulary ", vocabulary)));
    EXPECT_THAT(info.out, HasSubstr("end of document"));
    const std::string text = "stone 3 laid in courses";
    const ShellResult ids = tokenizer("encode " + folder, text);
    EXPECT_EQ(tokenizer("decode " + folder, ids.out).out, text);
    EXPECT_LT(std::count(ids.out.begin(), ids.out.end(), ' '), 22) << "fewer ids than characters";
  }
}

// `generate` reads a prompt as programs do that read the exported tokenizer, and tells words with their spaces.
TEST_F(TokenizerCommand, GenerateContinuesAPromptWithItsTemplate) {
  const std::string llama = fixture("tokenizers/llama2_bpe.json");
  run_.write("text.txt", run_shell("cat " ASHLAR_SOURCE_DIR "/README.md").out);
  ASSERT_EQ(run_.ashlar("data build text.txt --out spaced --tokenizer " + llama).code, 0);
  const ShellResult trained = run_.ashlar("train tiny.toml data.path=spaced run.dir=words train.steps=20");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string prompt = "stones laid", options = "generate words --temperature 0 --tokens 12 ";
  std::vector<std::string> texts;
  for (const auto& [encode, generate] : {std::pair("encode --template ", ""), {"encode ", "--no-template "}}) {
    std::string ids = tokenizer(encode + llama, prompt).out;
    ids.pop_back();
    std::string list = ids;
    std::replace(list.begin(), list.end(), ' ', ',');
    const std::string drawn = run_.ashlar(str_cat(options, "--ids ", list)).out;
    const std::string before = tokenizer("decode " + llama, ids).out;
    const std::string whole = tokenizer("decode " + llama, str_cat(ids, " ", drawn)).out;
    const ShellResult text = run_.ashlar(str_cat(options, generate, "--prompt '", prompt, "'"));
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(text.out, str_cat(prompt, whole.substr(before.size()), "\n"));
    texts.push_back(ids);
  }
  EXPECT_EQ(texts[0], "1 " + texts[1]) << "<s> before the prompt";
}

TEST_F(TokenizerCommand, RefusesInOneLine) {
  const std::string llama = fixture("tokenizers/llama2_bpe.json");
  expect_refused(tokenizer("decode " + llama, "13 x4"),
                 {"tokenizer decode", "expected token ids separated by white space or commas, got x4"});
  expect_refused(tokenizer("decode " + llama, "13 99999999"), {"99999999"});
  expect_refused(tokenizer("decode " + llama, "-1"), {"-1"});
  expect_refused(tokenizer("encode " + llama, "ab\xff"), {"standard input, byte offset 2"});
  expect_refused(tokenizer("encode " + llama + " " + llama), {"expected one tokenizer, got 2"});
  expect_refused(tokenizer("encode"), {"expected one tokenizer, got 0"});
  expect_refused(tokenizer("encode --templat " + llama), {"--templat", "--template"});
  expect_refused(tokenizer("info nowhere"), {"nowhere"});
  expect_refused(tokenizer("tell " + llama), {"tell", "info, encode, decode, train"});
  // A field that is not supported, by its name; merges that name no token.
  json changed = json::parse(std::ifstream(llama));
  changed["model"]["dropout"] = 0.5;
  run_.write("dropout.json", changed.dump());
  fs::create_directories(run_.dir() / "dropout");
  fs::rename(run_.dir() / "dropout.json", run_.dir() / "dropout/tokenizer.json");
  expect_refused(tokenizer("info dropout"), {"model.dropout"});
  changed = json::parse(std::ifstream(llama));
  changed["model"]["merges"][0] = "q\xe2\x96\x81q zz";
  fs::create_directories(run_.dir() / "merges");
  run_.write("merges/tokenizer.json", changed.dump());
  expect_refused(tokenizer("info merges"), {"merges"});
  changed = json::parse(std::ifstream(llama));
  changed["model"]["type"] = "WordPiece";
  fs::create_directories(run_.dir() / "wordpiece");
  run_.write("wordpiece/tokenizer.json", changed.dump());
  expect_refused(tokenizer("info wordpiece"), {"WordPiece"});
}

}  // namespace
}  // namespace ashlar::testing
