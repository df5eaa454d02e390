// Tokenizers that are made to cost time or memory, and damaged ones: refused by name, bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "data/tokenizer/forms.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/cpu_time.h"
#include "tests/support/mutate.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

json bare_bpe() {
  return json::parse(R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

/// What is said within three seconds of this thread.
template <typename Call>
std::string refusal_in_time(Call call) {
  const double start = testing::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  std::string said = "accepted";
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput) << e.what();
    said = e.what();
  }
  EXPECT_LT(testing::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start, 3) << said;
  EXPECT_LT(said.size(), 1500U);
  return said;
}

json replace(const json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

TEST(TokenizerBounds, StepsAreCounted) {
  json all = bare_bpe();
  all["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 100'000; ++i) all["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("more than 64 steps"));
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 90; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  all["normalizer"] = json::parse(deep);
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("more than 64 steps"));
  for (const char* part : {"pre_tokenizer", "decoder", "post_processor"}) {
    const char* const list = part == std::string("pre_tokenizer") ? "pretokenizers"
                             : part == std::string("decoder")     ? "decoders"
                                                                  : "processors";
    json more = bare_bpe();
    more[part] = {{"type", "Sequence"}, {list, json::array()}};
    for (int i = 0; i < 100; ++i) more[part][list].push_back({{"type", "ByteLevel"}});
    EXPECT_THAT(refusal_in_time([&] { tokenizer_of(more); }), HasSubstr("more than 64 steps")) << part;
  }
}

TEST(TokenizerBounds, ReplacementsAreBounded) {
  const std::string megabyte(1 << 20, 'x');
  json all = bare_bpe();
  all["normalizer"] = replace({{"String", megabyte}}, "a");
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("1048576 bytes, at most 8192"));
  all["normalizer"] = replace({{"String", "a"}}, megabyte);
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("has 1048576 bytes, at most 8192"));
  all["normalizer"] = {{"type", "Prepend"}, {"prepend", megabyte}};
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("prepend"));
  all["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 60; ++i) all["normalizer"]["normalizers"].push_back(replace({{"String", "a"}}, "aa"));
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all)->encode("aaaa"); }),
              HasSubstr("its replacements multiply the text"));
  all["normalizer"] = nullptr;
  all["decoder"] = {{"type", "Sequence"}, {"decoders", json::array()}};
  for (int i = 0; i < 60; ++i) all["decoder"]["decoders"].push_back(replace({{"String", "a"}}, "aa"));
  EXPECT_THAT(refusal_in_time([&] {
                tokenizer_of(all)->decode(Ids{0, 0});
              }),
              HasSubstr("its replacements multiply the text"));
  // Each byte of a byte's character is written as two more.
  all["decoder"] = nullptr;
  all["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 60; ++i)
    all["pre_tokenizer"]["pretokenizers"].push_back({{"type", "ByteLevel"}, {"use_regex", false}});
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all)->encode("\u65e5\u672c"); }),
              HasSubstr("its replacements multiply the text"));
}

TEST(TokenizerBounds, VocabulariesAreBounded) {
  json all = bare_bpe();
  all["model"]["vocab"]["c"] = 16'000'000;
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }),
              HasSubstr("the id of 'c' is 16000000, far beyond the 4 tokens"));
  all = bare_bpe();
  all["added_tokens"] = {{{"id", 16'000'000}, {"content", "x"}}};
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("'x' has the id 16000000"));
  all["added_tokens"] = {{{"id", 3}, {"content", std::string(5000, 'x')}}};
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("an added token of 5000 bytes"));
  all = bare_bpe();
  all["model"] = {{"type", "Unigram"},
                  {"unk_id", 0},
                  {"vocab", json::array({json::array({"<unk>", 0.0}), json::array({std::string(5000, 'a'), -1.0})})}};
  EXPECT_THAT(refusal_in_time([&] { tokenizer_of(all); }), HasSubstr("vocab[1]: a token of 5000 bytes"));
  const auto ranks = [](std::map<std::string, std::string> bytes) {
    bytes["about.json"] = R"({"pattern": "a", "special": {}})";
    return refusal_in_time([&] { tokenizer_from_files({.shown = "here", .bytes = bytes}); });
  };
  EXPECT_THAT(ranks({{"a.tiktoken", "IQ== 16000000\n"}}), HasSubstr("the rank 16000000 is far beyond"));
  EXPECT_THAT(ranks({{"a.tiktoken", std::string(8000, 'A') + " 0\n"}}), HasSubstr("a token of 6000 bytes"));
}

/// A thousand added tokens that begin alike cost no more than one.
TEST(TokenizerBounds, AddedTokensAreFoundTogether) {
  json all = bare_bpe();
  const std::string begin(200, 'a');
  for (int i = 0; i < 20'000; ++i)
    all["added_tokens"].push_back({{"id", 3 + i}, {"content", str_cat(begin, i, "#")}, {"special", true}});
  const auto tokenizer = tokenizer_of(all);
  EXPECT_EQ(refusal_in_time([&] {
              EXPECT_EQ(tokenizer->encode(std::string(100'000, 'a')).size(), 100'000U);
              EXPECT_EQ(tokenizer->encode(begin + "77#ab"), Ids({80, 2}));
            }),
            "accepted");
}

/// A pattern that takes time that doubles with each character.
TEST(TokenizerBounds, AMatchThatTakesTooManyStepsIsTheInputs) {
  json all = bare_bpe();
  all["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+[cd]"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = tokenizer_of(all);
  EXPECT_EQ(tokenizer->encode("ab"), Ids({2}));
  EXPECT_THAT(refusal_in_time([&] { tokenizer->encode(std::string(100, 'a')); }),
              HasSubstr("pre_tokenizer.pattern: the pattern cannot be matched at byte 0 of a text of 100 bytes"));
}

/// Whatever is read of a damaged tokenizer, some texts and ids go through it.
void use(const FormTokenizer& tokenizer) {
  for (const char* text : {"The cat it's  1234 \u00e9\u65e5\n", "<s>a</s> <|endoftext|>"}) {
    try {
      const Ids ids = tokenizer.encode(std::string_view(text));
      tokenizer.decode(ids);
    } catch (const TextError&) {
    }
  }
  tokenizer.special_tokens();
  try {
    tokenizer.fingerprint();
  } catch (const Error&) {
  }
}

std::string fixture(const char* name) { return io::read_text_file(kFixtures / name, 1 << 22); }

testing::MutationTrials trials_of(std::vector<std::string> inputs) {
  return {.inputs = std::move(inputs), .seed = 19, .trials = 40};
}

TEST(TokenizerBounds, MutatedTokenizerJson) {
  json pipeline = bare_bpe();
  pipeline["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [{"type": "NFKC"},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"}, {"type": "Strip", "strip_left": true,
      "strip_right": true}, {"type": "Lowercase"}]})");
  pipeline["pre_tokenizer"] = json::parse(R"json({"type": "Sequence", "pretokenizers": [{"type": "Digits",
      "individual_digits": true}, {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)"},
      "behavior": "MergedWithNext", "invert": false}, {"type": "Metaspace", "replacement": "_"}]})json");
  pipeline["added_tokens"] = json::parse(R"([{"id": 3, "content": "</s>", "special": true}])");
  pipeline["post_processor"] = json::parse(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}},
      {"SpecialToken": {"id": "</s>"}}], "special_tokens": {"</s>": {"id": "</s>", "ids": [3], "tokens": ["</s>"]}}})");
  testing::expect_bounded(trials_of({pipeline.dump(), fixture("tokenizers/t5_unigram.json")}),
                          [](const std::string& input) {
                            use(*tokenizer_from_files({.shown = "here", .bytes = {{"tokenizer.json", input}}}));
                          });
}

// Rules in a double array: bytes of characters that a rule does not give whole.
TEST(TokenizerBounds, RulesThatGivePartsOfCharactersAreRefused) {
  json whole = json::parse(fixture("tokenizers/t5_unigram.json"));
  json* rules = &whole["normalizer"];
  while (rules->contains("normalizers")) rules = &(*rules)["normalizers"][0];
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape((*rules)["precompiled_charsmap"].get<std::string>(), &bytes));
  uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  const auto with = [&](const std::string& changed) {
    (*rules)["precompiled_charsmap"] = absl::Base64Escape(changed);
    return refusal_in_time(
        [&] { tokenizer_of(whole)->encode(std::string_view("\uFF71")); });  // half as wide as what a rule gives
  };
  EXPECT_EQ(with(bytes), "accepted");
  std::string broken = bytes;
  broken[4 + trie_bytes] = '\xFF';
  EXPECT_THAT(with(broken), HasSubstr("the texts of its rules are not UTF-8"));
  // Each rule one byte on: those that give more than ASCII begin within a character.
  std::string late = bytes.substr(0, 4 + trie_bytes) + "a" + bytes.substr(4 + trie_bytes);
  for (size_t i = 4; i < 4 + trie_bytes; i += 4) {
    uint32_t unit = 0;
    std::memcpy(&unit, late.data() + i, sizeof(unit));
    if ((unit >> 31) != 0) unit += 2;
    std::memcpy(late.data() + i, &unit, sizeof(unit));
  }
  EXPECT_THAT(with(late), HasSubstr("a replacement starts in the middle of a UTF-8 character"));
}

TEST(TokenizerBounds, MutatedVocabularyAndMerges) {
  const std::string vocab = fixture("tokenizers-gpt2/vocab.json"), merges = fixture("tokenizers-gpt2/merges.txt");
  testing::expect_bounded(trials_of({vocab}), [&](const std::string& input) {
    use(*tokenizer_from_files({.shown = "here", .bytes = {{"vocab.json", input}, {"merges.txt", merges}}}));
  });
  testing::expect_bounded(trials_of({merges}), [&](const std::string& input) {
    use(*tokenizer_from_files({.shown = "here", .bytes = {{"vocab.json", vocab}, {"merges.txt", input}}}));
  });
}

TEST(TokenizerBounds, MutatedFilesBeside) {
  const std::string tokenizer = bare_bpe().dump();
  const std::string config = R"({"tokenizer_class": "Qwen2Tokenizer", "eos_token": {"content": "</s>", "lstrip": true},
      "bos_token": "<s>", "additional_special_tokens": ["<x>", {"content": "<y>"}], "add_bos_token": true,
      "added_tokens_decoder": {"3": {"content": "</s>", "special": true}, "4": {"content": "<s>"}}, "legacy": false})";
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2})";
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "config.json"}) {
    testing::expect_bounded(trials_of({config}), [&](const std::string& input) {
      use(*tokenizer_from_files({.shown = "here", .bytes = {{"tokenizer.json", tokenizer}, {name, input}}}));
      use(*tokenizer_from_files(
          {.shown = "here", .bytes = {{"vocab.json", vocab}, {"merges.txt", "a b"}, {name, input}}}));
    });
  }
  testing::expect_bounded(trials_of({R"({"</s>": 3, "<x>": 4})"}), [&](const std::string& input) {
    use(*tokenizer_from_files(
        {.shown = "here", .bytes = {{"tokenizer.json", tokenizer}, {"added_tokens.json", input}}}));
  });
}

TEST(TokenizerBounds, MutatedRanks) {
  const std::string ranks = fixture("tokenizers-tiktoken/ranks.tiktoken");
  const std::string about = fixture("tokenizers-tiktoken/about.json");
  testing::expect_bounded(trials_of({ranks}), [&](const std::string& input) {
    use(*tokenizer_from_files({.shown = "here", .bytes = {{"r.tiktoken", input}, {"about.json", about}}}));
  });
  testing::expect_bounded(trials_of({about}), [&](const std::string& input) {
    use(*tokenizer_from_files({.shown = "here", .bytes = {{"r.tiktoken", ranks}, {"about.json", input}}}));
  });
}

TEST(TokenizerBounds, MutatedSentencePieceModels) {
  for (const char* name :
       {"sentencepiece_bpe_identity", "sentencepiece_unigram_identity", "sentencepiece_unigram_nmt_nfkc"}) {
    testing::expect_bounded(trials_of({fixture(str_cat(name, "/model.model").c_str())}), [](const std::string& input) {
      use(*tokenizer_from_files({.shown = "here", .bytes = {{"m.model", input}}}));
    });
  }
}

/// What a dataset or a checkpoint holds of a tokenizer.
TEST(TokenizerBounds, MutatedTokenizersOfDatasets) {
  const auto tokenizer = tokenizer_from_files(
      {.shown = "here",
       .bytes = {{"tokenizer.json", bare_bpe().dump()}, {"tokenizer_config.json", R"({"eos_token": "b"})"}}});
  testing::expect_bounded(trials_of({tokenizer->to_json(), R"({"eod_id":256,"kind":"bytes","vocab_size":257})",
                                     R"({"code_points":[10,97],"eod_id":2,"kind":"characters","vocab_size":3})"}),
                          [](const std::string& input) { tokenizer_from_json(input); });
}

}  // namespace
}  // namespace ashlar::data
