#include "data/tokenizer/forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/token_dataset.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Byte-level BPE over `ab` and the end of a text, as small as one can be.
json byte_level_bpe() {
  return json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": ["a b", ["ab", "b"]]}})");
}

std::string refusal(const json& value) {
  try {
    tokenizer_of(value);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(TokenizerFiles, MergesComeInTheOrderOfTheirList) {
  const auto tokenizer = tokenizer_of(byte_level_bpe());
  EXPECT_EQ(tokenizer->encode("abbab</s>aa"), Ids({3, 2, 4, 0, 0}));
  EXPECT_EQ(tokenizer->eod_id(), 4);
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_EQ(tokenizer->identity(), "tokenizer.json (byte-level BPE)");
}

/// Ids of `tokenizers` 0.23.3 with encode_special_tokens, but for the vocabulary that has the spelling as a token:
/// there it gives the special id.
TEST(TokenizerFiles, SpecialTokensAsText) {
  json value = byte_level_bpe();
  value["added_tokens"].push_back({{"id", 9},
                                   {"content", "<|u|>"},
                                   {"single_word", false},
                                   {"lstrip", false},
                                   {"rstrip", false},
                                   {"normalized", false},
                                   {"special", false}});
  value["model"]["vocab"].update(json::parse(R"({"<": 5, "/": 6, "s": 7, ">": 8})"));
  const auto as_text = [](const FormTokenizer& tokenizer, std::string_view text, const Ids& expected, size_t offset) {
    Ids ids;
    std::vector<SpecialSpelling> found;
    tokenizer.encode_as_text(text, ids, found);
    EXPECT_EQ(ids, expected) << text;
    ASSERT_EQ(found.size(), 1U) << text;
    EXPECT_EQ(found[0].id, tokenizer.eod_id());
    EXPECT_EQ(found[0].offset, offset);
  };
  const auto bpe = tokenizer_of(value);
  EXPECT_EQ(bpe->encode("ab</s>b<|u|>"), Ids({2, 4, 1, 9}));
  as_text(*bpe, "ab</s>b<|u|>", {2, 5, 6, 7, 8, 1, 9}, 2);
  EXPECT_TRUE(bpe->has_special_tokens());

  value["added_tokens"][0]["special"] = false;  // eos is special whatever the flag says
  const std::string config = R"({"eos_token": "</s>"})";
  const auto named = tokenizer_from_files(
      {.shown = "here", .bytes = {{"tokenizer.json", value.dump()}, {"tokenizer_config.json", config}}});
  as_text(*named, "ab</s>b<|u|>", {2, 5, 6, 7, 8, 1, 9}, 2);

  value["pre_tokenizer"] = value["decoder"] = nullptr;
  value["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["<", -2.0],
    ["/", -2.0], ["</s>", 0.0], ["s", -2.0], [">", -2.0], ["</", -2.5], ["s>", -3.0], ["<|u|>", 0.0]]})");
  value["added_tokens"][0]["special"] = true;
  const auto unigram = tokenizer_of(value);
  as_text(*unigram, "a</s>?", {1, 2, 3, 8, 0}, 1);
}

/// Metaspace "first" puts its mark before what begins the text as it came: not where a normaliser has removed what did.
/// The ids are those of `tokenizers` 0.23.3.
TEST(TokenizerFiles, MetaspaceFirstKnowsWhatTheTextBeganWith) {
  const std::string strip = R"({"type": "Strip", "strip_left": true, "strip_right": false})";
  const std::string prepend = R"({"type": "Prepend", "prepend": "b"})";
  const std::map<std::string, std::vector<std::pair<std::string, Ids>>> expected = {
      {"null", {{"ab", {4, 3}}, {"xab", {1, 7, 2, 3}}, {" ab", {4, 3}}}},
      {R"({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""})", {{"xab", {2, 3}}, {"axb", {4, 3}}}},
      {R"({"type": "Replace", "pattern": {"String": "x"}, "content": "b"})", {{"xab", {5, 2, 3}}}},
      {strip, {{" ab", {2, 3}}, {"ab", {4, 3}}}},
      {R"({"type": "Strip", "strip_left": false, "strip_right": true})", {{" ab", {4, 3}}}},
      {R"({"type": "Nmt"})", {{"\nab", {4, 3}}, {"\1ab", {2, 3}}}},
      {prepend, {{"ab", {5, 2, 3}}}},
      {str_cat(R"({"type": "Sequence", "normalizers": [)", strip, ",", prepend, "]}"),
       {{" ab", {3, 2, 3}}, {"ab", {5, 2, 3}}}}};
  json value = byte_level_bpe();
  value["added_tokens"] = json::array();
  value["decoder"] = nullptr;
  value["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  value["model"] = json::parse(R"({"type": "BPE", "unk_token": "<unk>", "merges": [["\u2581", "a"], ["\u2581", "b"]],
    "vocab": {"<unk>": 0, "\u2581": 1, "a": 2, "b": 3, "\u2581a": 4, "\u2581b": 5, "\n": 6, "x": 7}})");
  for (const auto& [normalizer, texts] : expected) {
    value["normalizer"] = json::parse(normalizer);
    for (const auto& [text, ids] : texts)
      EXPECT_EQ(tokenizer_of(value)->encode(text), ids) << normalizer << " " << text;
  }
}

/// A word of more symbols than the scan takes goes through the heap: the same ids as piece by piece.
TEST(TokenizerFiles, LongWordsAreMergedAsShortOnes) {
  const auto tokenizer = tokenizer_of(byte_level_bpe());
  std::string text;
  Ids expected;
  for (int i = 0; i < 1000; ++i) {
    text += i % 3 == 0 ? "abb" : "a";
    expected.push_back(i % 3 == 0 ? 3 : 0);
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
}

/// They cut and fill texts for a batch; a dataset has no such batches.
TEST(TokenizerFiles, TruncationAndPaddingAreIgnored) {
  json all = byte_level_bpe();
  all["truncation"] = {{"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Right"}};
  all["padding"] = {{"strategy", {{"Fixed", 8}}}, {"pad_id", 0}, {"pad_token", "a"}};
  EXPECT_EQ(tokenizer_of(all)->encode("abbab</s>aa"), Ids({3, 2, 4, 0, 0}));
}

/// What is not understood may change ids, and is refused by its name.
TEST(TokenizerFiles, FieldsThatAreNotKnownAreNamed) {
  const auto changed = [](const char* pointer, const json& value) {
    json all = byte_level_bpe();
    all[json::json_pointer(pointer)] = value;
    return refusal(all);
  };
  EXPECT_THAT(changed("/model/type", "WordPiece"), HasSubstr("model.type = \"WordPiece\": not supported"));
  EXPECT_THAT(changed("/model/dropout", 0.1), HasSubstr("model.dropout = 0.1: not supported"));
  EXPECT_THAT(changed("/model/surprise", 1), HasSubstr("model.surprise = 1"));
  EXPECT_THAT(changed("/surprise", 1), HasSubstr("tokenizer.json: surprise"));
  EXPECT_THAT(changed("/normalizer", {{"type", "BertNormalizer"}}), HasSubstr("normalizer.type = \"BertNormalizer\""));
  EXPECT_THAT(changed("/pre_tokenizer", {{"type", "UnicodeScripts"}}), HasSubstr("pre_tokenizer.type"));
  EXPECT_THAT(
      changed("/pre_tokenizer", json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
      "pattern": {"Regex": "a[[:alpha:]]"}, "behavior": "Isolated"}]})")),
      HasSubstr("pre_tokenizer.pretokenizers[0].pattern: the pattern has a character class inside a character class"));
  EXPECT_THAT(changed("/pre_tokenizer", json::parse(R"({"type": "Split", "pattern": {"Regex": "\\p{Han}"},
      "behavior": "Isolated"})")),
              HasSubstr("the property Han"));
  EXPECT_THAT(changed("/pre_tokenizer", json::parse(R"({"type": "Split", "pattern": {"Regex": "("},
      "behavior": "Isolated"})")),
              HasSubstr("cannot be compiled"));
  EXPECT_THAT(changed("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder.type"));
  EXPECT_THAT(changed("/post_processor", {{"type", "Other"}}), HasSubstr("post_processor.type"));
  EXPECT_THAT(changed("/added_tokens/0/id", 3), HasSubstr("which is the id of 'abb'"));
}

TEST(TokenizerFiles, MergesNameTokens) {
  json all = byte_level_bpe();
  all["model"]["merges"] = {"a b", "ab c"};
  EXPECT_THAT(refusal(all), HasSubstr("model.merges[1] names 'c', which is not a token of vocab"));
  all["model"]["merges"] = {"a b c"};
  EXPECT_THAT(refusal(all), HasSubstr("model.merges[0]: expected two tokens"));
  all["model"]["merges"] = {"b a"};
  EXPECT_THAT(refusal(all), HasSubstr("'ba'"));
}

TEST(TokenizerFiles, BadJsonAndBadTextAreSaid) {
  EXPECT_THROW(tokenizer_from_files({.shown = "here", .bytes = {{"tokenizer.json", "{\"model\": "}}}), Error);
  EXPECT_THROW(tokenizer_from_files({.shown = "here", .bytes = {{"other", ""}}}), Error);
  EXPECT_THROW(open_tokenizer("/nowhere/tokenizer.json"), Error);
  const auto tokenizer = tokenizer_of(byte_level_bpe());
  try {
    tokenizer->encode("ab\xff");
    FAIL() << "accepted";
  } catch (const TextError& e) {
    EXPECT_EQ(e.offset, 2U);
  }
  EXPECT_THROW(tokenizer->decode(Ids{5}), Error);
}

TEST(TokenizerFiles, OtherFormsAreRefusedByTheirLine) {
  const auto said = [](std::map<std::string, std::string> bytes) -> std::string {
    try {
      tokenizer_from_files({.shown = "here", .bytes = std::move(bytes)});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(said({{"a.tiktoken", "IQ== 0\nnot a line\n"}}), HasSubstr("a.tiktoken, line 2: expected BASE64 RANK"));
  EXPECT_THAT(said({{"a.tiktoken", "IQ== 0\n"}}), HasSubstr("has 1 ranks, unlike any published file"));
  EXPECT_THAT(said({{"a.tiktoken", "IQ== 0\n"}, {"about.json", R"({"pattern": "a", "special": {}})"}}),
              HasSubstr("no rank for the byte 0"));
  EXPECT_THAT(said({{"vocab.json", R"({"a": 0, "b": 1})"}, {"merges.txt", "#version: 0.2\na b\n"}}),
              HasSubstr("got none for byte 0"));
  EXPECT_THAT(said({{"vocab.json", R"({"a</w>": 0})"}, {"merges.txt", ""}}), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(said({{"vocab.json", "[]"}, {"merges.txt", ""}}), HasSubstr("vocab.json: expected a JSON object"));
}

TEST(TokenizerFiles, ATokenizerWithoutEosEndsNoDocument) {
  json all = byte_level_bpe();
  all["added_tokens"] = json::array();
  const auto tokenizer = tokenizer_of(all);
  EXPECT_EQ(tokenizer->encode("ab"), Ids({2}));
  EXPECT_THROW(tokenizer->eod_id(), Error);
  const auto named = tokenizer_from_files(
      {.shown = "here",
       .bytes = {{"tokenizer.json", all.dump()}, {"tokenizer_config.json", R"({"eos_token": {"content": "b"}})"}}});
  EXPECT_EQ(named->eod_id(), 1);
}

TEST(TokenizerFiles, ADatasetCarriesItsTokenizer) {
  const ashlar::testing::ScratchDir scratch;
  const std::string folder = scratch.file("tokenizer"), text = scratch.file("text.jsonl");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/tokenizer.json") << byte_level_bpe().dump();
  std::ofstream(text) << "{\"text\": \"abb\"}\n{\"text\": \"aab\"}\n";
  BuildOptions options{.inputs = {text}, .out = scratch.file("data"), .tokenizer = folder, .validation = 0};
  const BuildReport report = build_dataset(options);
  EXPECT_EQ(report.manifest.part(Part::kTrain).tokens, 5);
  std::filesystem::remove_all(folder);
  TokenDataset dataset(options.out);
  Ids ids(5);
  dataset.read(Part::kTrain, 0, ids);
  EXPECT_EQ(ids, Ids({3, 4, 0, 2, 4}));
  EXPECT_EQ(dataset.tokenizer().decode(ids), "abb</s>aab</s>");
  EXPECT_EQ(dataset.tokenizer().files().at(0).bytes, byte_level_bpe().dump());
}

}  // namespace
}  // namespace ashlar::data
