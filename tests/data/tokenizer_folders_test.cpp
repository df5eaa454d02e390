// What the files beside a tokenizer say: its class, its added tokens. Ids are those of transformers 4.57.6 and 5.24.0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "data/shards/fingerprint.h"
#include "data/tokenizer/bytes_tokenizer.h"
#include "data/tokenizer/characters_tokenizer.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/hugging_face_files.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using Bytes = std::map<std::string, std::string>;

Bytes bytes_of_files(const fs::path& folder) {
  Bytes bytes;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") continue;
    bytes[entry.path().filename().string()] = io::read_text_file(entry.path(), 1 << 20);
  }
  return bytes;
}

std::unique_ptr<FormTokenizer> tokenizer_of_files(Bytes bytes, int rules = 2) {
  return tokenizer_from_files({.shown = "here", .bytes = std::move(bytes), .rules = rules});
}

std::string refusal_of_files(Bytes bytes) {
  try {
    tokenizer_of_files(std::move(bytes));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput) << e.what();
    return e.what();
  }
  return "accepted";
}

Bytes with_class(Bytes bytes, const std::string& name, json more = json::object()) {
  more["tokenizer_class"] = name;
  bytes["tokenizer_config.json"] = more.dump();
  return bytes;
}

TEST(TokenizerFolders, EveryIdIsThatOfTransformers) {
  for (const char* name : {"tokenizers-qwen2", "tokenizers-more-added"}) {
    const auto tokenizer = open_tokenizer(kFixtures / name);
    std::ifstream rows(kFixtures / name / "vectors.jsonl");
    int compared = 0;
    for (std::string line; std::getline(rows, line); ++compared) {
      const json row = json::parse(line);
      EXPECT_EQ(tokenizer->encode(row.at("text").get<std::string>()), row.at("ids").get<Ids>()) << name << " " << line;
    }
    EXPECT_EQ(compared, 87) << name;
    // In a dataset or checkpoint, and exported for other programs.
    const auto kept = tokenizer_from_json(tokenizer->to_json());
    const auto exported = tokenizer_of_files(hugging_face_files(*tokenizer, 512).bytes);
    for (const char* text : {"a<|user|>b", "x\u65e5\u672c<|im_end|>", "caf\u0065\u0301 1234 it's"}) {
      EXPECT_EQ(kept->encode(text), tokenizer->encode(text)) << name << text;
      EXPECT_EQ(exported->encode(text), tokenizer->encode(text)) << name << text;
    }
    EXPECT_EQ(exported->fingerprint(), tokenizer->fingerprint()) << name;
  }
  EXPECT_EQ(open_tokenizer(kFixtures / "tokenizers-more-added")->encode("a<|user|>b"), Ids({65, 1200, 66}));
}

TEST(TokenizerFolders, AddedTokensJsonCountsToo) {
  Bytes bytes = bytes_of_files(kFixtures / "tokenizers-more-added");
  bytes["tokenizer_config.json"] = R"({"eos_token": "<|endoftext|>"})";
  bytes["added_tokens.json"] = R"({"<|user|>": 1200})";
  EXPECT_EQ(tokenizer_of_files(bytes)->encode("a<|user|>b"), Ids({65, 1200, 66}));
  bytes["added_tokens.json"] = R"({"<|user|>": 1300})";
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("'<|user|>' should have the id 1300, but transformers gives it 1200"));
  bytes["added_tokens.json"] = R"({"<|user|>": "x"})";
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("is not a number"));
  bytes.erase("added_tokens.json");
  bytes["tokenizer_config.json"] = R"({"split_special_tokens": true})";
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("split_special_tokens"));
  // Named special tokens are found in a text as well.
  bytes["tokenizer_config.json"] = R"({"pad_token": "<pad>", "additional_special_tokens": ["<|user|>"]})";
  EXPECT_EQ(tokenizer_of_files(bytes)->encode("a<|user|>b<pad>"), Ids({65, 1201, 66, 1200}));
}

TEST(TokenizerFolders, AddedTokensBesideASentencePieceModel) {
  Bytes bytes;
  bytes["tokenizer.model"] = io::read_text_file(kFixtures / "sentencepiece_bpe_identity/model.model", 1 << 20);
  const auto alone = tokenizer_of_files(bytes);
  const int32_t behind = alone->vocab_size();
  bytes["added_tokens.json"] = str_cat("{\"<|user|>\": ", behind, "}");
  bytes["tokenizer_config.json"] = R"({"tokenizer_class": "LlamaTokenizer"})";
  const auto tokenizer = tokenizer_of_files(bytes);
  Ids expected = alone->encode("a");
  expected.push_back(behind);
  for (const int32_t id : alone->encode("b c")) expected.push_back(id);
  EXPECT_EQ(tokenizer->encode("a<|user|>b c"), expected);
  EXPECT_EQ(tokenizer->decode(expected), "a<|user|> b c");
  EXPECT_EQ(tokenizer->vocab_size(), behind + 1);
  const auto exported = tokenizer_of_files(hugging_face_files(*tokenizer, 0).bytes);
  EXPECT_EQ(exported->encode("a<|user|>b c"), expected);
  EXPECT_EQ(exported->fingerprint(), tokenizer->fingerprint());
}

/// Where the slow and the fast class of transformers 4.57.6 give other ids, or leave out what 5.24.0 takes.
TEST(TokenizerFolders, WhatTheKindsOfAClassTakeDifferentlyIsRefused) {
  const Bytes gpt2 = bytes_of_files(kFixtures / "tokenizers-gpt2"),
              qwen2 = bytes_of_files(kFixtures / "tokenizers-qwen2");
  const auto with_merges = [&](const Bytes& from, const std::string& merges) {
    Bytes bytes = with_class(from, from == qwen2 ? "Qwen2Tokenizer" : "GPT2Tokenizer");
    bytes["merges.txt"] = merges;
    return bytes;
  };
  const std::string merges = gpt2.at("merges.txt"), lines = merges.substr(merges.find('\n') + 1);
  EXPECT_EQ(refusal_of_files(with_merges(gpt2, merges)), "accepted");
  EXPECT_THAT(refusal_of_files(with_merges(gpt2, lines)), HasSubstr("at the top"));
  EXPECT_THAT(refusal_of_files(with_merges(gpt2, merges.substr(0, merges.size() - 1))),
              HasSubstr("after the last merge"));
  const std::string of_qwen2 = qwen2.at("merges.txt");
  EXPECT_EQ(refusal_of_files(with_merges(qwen2, of_qwen2.substr(of_qwen2.find('\n') + 1))), "accepted");

  EXPECT_THAT(refusal_of_files(with_class(gpt2, "GPT2Tokenizer", {{"add_prefix_space", true}})),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(refusal_of_files(with_class(gpt2, "CodeGenTokenizer", {{"add_eos_token", true}})),
              HasSubstr("add_eos_token"));
  EXPECT_THAT(refusal_of_files(with_class(qwen2, "Qwen2Tokenizer", {{"add_bos_token", true}})),
              HasSubstr("add_bos_token"));
  Bytes fewer = gpt2;
  json vocab = json::parse(fewer["vocab.json"]);
  const json added = {
      {"added_tokens_decoder", {{std::to_string(vocab.size()), {{"content", "<w>"}, {"single_word", true}}}}}};
  EXPECT_THAT(refusal_of_files(with_class(gpt2, "GPT2Tokenizer", added)), HasSubstr("'<w>' with \"single_word\""));
  vocab.erase("\u0143");
  fewer["vocab.json"] = vocab.dump();
  EXPECT_THAT(refusal_of_files(with_class(fewer, "GPT2Tokenizer")), HasSubstr("got none for byte 173"));

  Bytes model;
  model["tokenizer.model"] = io::read_text_file(kFixtures / "sentencepiece_bpe_identity/model.model", 1 << 20);
  EXPECT_EQ(refusal_of_files(with_class(model, "LlamaTokenizer", {{"legacy", true}})), "accepted");
  EXPECT_THAT(refusal_of_files(with_class(model, "LlamaTokenizer", {{"legacy", false}})),
              HasSubstr("\"legacy\": false"));
  EXPECT_THAT(refusal_of_files(with_class(model, "LlamaTokenizer", {{"add_prefix_space", false}})),
              HasSubstr("prefix_space"));
  const json behind = {
      {"added_tokens_decoder",
       {{std::to_string(tokenizer_of_files(model)->vocab_size()), {{"content", "<w>"}, {"single_word", true}}}}}};
  EXPECT_THAT(refusal_of_files(with_class(model, "LlamaTokenizer", behind)), HasSubstr("'<w>' with \"single_word\""));
}

/// Its class puts eos behind a text, whatever the files say of bos.
TEST(TokenizerFolders, BlenderbotPutsNoBos) {
  const Bytes bytes = with_class(bytes_of_files(kFixtures / "tokenizers-gpt2"), "BlenderbotTokenizer",
                                 {{"add_prefix_space", false},
                                  {"add_bos_token", true},
                                  {"bos_token", "<|endoftext|>"},
                                  {"eos_token", "<|endoftext|>"}});
  const auto tokenizer = tokenizer_of_files(bytes);
  Ids expected = tokenizer->encode("a b"), ids;
  expected.push_back(*tokenizer->eos_id());
  tokenizer->encode_with_template("a b", ids);
  EXPECT_EQ(ids, expected);
}

TEST(TokenizerFolders, TokensListedBesideRanksMustBeTheirs) {
  Bytes bytes = bytes_of_files(kFixtures / "tokenizers-tiktoken");
  const json special = json::parse(bytes["about.json"])["special"];
  ASSERT_FALSE(special.empty());
  const auto list = [](const std::string& content, const json& id, bool lstrip = false) {
    return json{{"added_tokens_decoder", {{id.dump(), {{"content", content}, {"lstrip", lstrip}}}}}}.dump();
  };
  const auto& [content, id] = *special.items().begin();
  bytes["tokenizer_config.json"] = list(content, id);
  EXPECT_EQ(refusal_of_files(bytes), "accepted");
  bytes["tokenizer_config.json"] = list(content, id, true);
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("lstrip"));
  bytes["tokenizer_config.json"] = list(content, 9999);
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("with the id 9999, which is not a special token"));
  bytes["tokenizer_config.json"] = list("<|mine|>", id);
  EXPECT_THAT(refusal_of_files(bytes), HasSubstr("'<|mine|>'"));
  EXPECT_NO_THROW(tokenizer_of_files(bytes, 1)) << "a dataset of before";
}

TEST(TokenizerFolders, SeveralModelsAreNamed) {
  const std::string model = io::read_text_file(kFixtures / "sentencepiece_bpe_identity/model.model", 1 << 20);
  EXPECT_THAT(refusal_of_files({{"source.model", model}, {"target.model", model}}),
              HasSubstr("expected one tokenizer, got 2 models: 'source.model', 'target.model'; give the path"));
}

TEST(TokenizerFolders, ClassesThatAreNotServedAreRefusedByName) {
  const Bytes pairs = {{"vocab.json", R"({"a": 0, "b": 1, "ab": 2})"}, {"merges.txt", "#version: 0.2\na b\n"}};
  for (const char* name : {"CLIPTokenizer", "CLIPTokenizerFast", "OpenAIGPTTokenizer", "HerbertTokenizer",
                           "LayoutLMv3Tokenizer", "PreTrainedTokenizerFast", "LlamaTokenizer", "MyOwnTokenizer"}) {
    EXPECT_THAT(refusal_of_files(with_class(pairs, name)), HasSubstr(str_cat("the tokenizer class '", name, "'")));
  }
  EXPECT_THAT(refusal_of_files(with_class(pairs, "RobertaTokenizer")), HasSubstr("mask_token"));
  EXPECT_THAT(refusal_of_files(with_class(pairs, "BlenderbotTokenizer")), HasSubstr("add_prefix_space"));
  const Bytes whole = bytes_of_files(kFixtures / "tokenizers-gpt2");
  EXPECT_EQ(refusal_of_files(with_class(whole, "BlenderbotTokenizer", {{"add_prefix_space", false}})), "accepted");
  Bytes model;
  model["spiece.model"] = io::read_text_file(kFixtures / "sentencepiece_unigram_identity/model.model", 1 << 20);
  for (const char* name : {"XLMRobertaTokenizer", "CamembertTokenizer", "T5Tokenizer", "AlbertTokenizer",
                           "PegasusTokenizer", "NllbTokenizer", "GemmaTokenizer", "LlamaTokenizer", "Own"}) {
    EXPECT_THAT(refusal_of_files(with_class(model, name)), HasSubstr(name));
  }
  // A dataset of before has them as it was built.
  EXPECT_NO_THROW(tokenizer_of_files(with_class(model, "T5Tokenizer"), 1));
}

TEST(TokenizerFolders, ConfigJsonSaysTheClassWhereNothingElseDoes) {
  const ashlar::testing::ScratchDir scratch;
  const std::string folder = scratch.file("folder");
  fs::create_directory(folder);
  for (const char* name : {"vocab.json", "merges.txt"})
    fs::copy_file(kFixtures / "tokenizers-qwen2" / name, fs::path(folder) / name);
  const std::string text = "it's e\u0301";
  const Ids as_gpt2 = open_tokenizer(folder)->encode(text);
  std::ofstream(folder + "/config.json") << R"({"model_type": "gpt2"})";
  EXPECT_EQ(open_tokenizer(folder)->encode(text), as_gpt2);
  std::ofstream(folder + "/config.json") << R"({"model_type": "qwen2"})";
  const auto qwen2 = open_tokenizer(folder);
  EXPECT_EQ(qwen2->encode(text), open_tokenizer(kFixtures / "tokenizers-qwen2")->encode(text));
  EXPECT_NE(qwen2->encode(text), as_gpt2);
  EXPECT_EQ(tokenizer_from_json(qwen2->to_json())->encode(text), qwen2->encode(text));
  std::ofstream(folder + "/config.json") << R"({"model_type": "clip"})";
  EXPECT_THROW(open_tokenizer(folder), Error);
  std::ofstream(folder + "/config.json") << R"({"model_type": "qwen3_next"})";
  EXPECT_EQ(open_tokenizer(folder)->encode(text), qwen2->encode(text));
}

// Before: types that were not in a list of some 40 read the model as the SentencePiece library does.
TEST(TokenizerFolders, AModelTypeRefusesAModelOfItsClass) {
  const ashlar::testing::ScratchDir scratch;
  const std::string folder = scratch.file("folder");
  fs::create_directory(folder);
  fs::copy_file(kFixtures / "sentencepiece_bpe_identity/model.model", fs::path(folder) / "tokenizer.model");
  const auto read_as = [&](const std::string& type) -> std::string {
    std::ofstream(folder + "/config.json") << R"({"model_type": ")" << type << "\"}";
    try {
      open_tokenizer(folder);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const char* type : {"llama", "mistral", "paligemma", "of nobody"}) EXPECT_EQ(read_as(type), "") << type;
  const std::pair<const char*, const char*> refused[] = {
      {"plbart", "PLBart"},          {"fnet", "FNet"},          {"nllb-moe", "Nllb"},
      {"t5gemma", "Gemma"},          {"udop", "Udop"},          {"code_llama", "CodeLlama"},
      {"xlm-roberta", "XLMRoberta"}, {"gemma3n_text", "Gemma"}, {"siglip", "Siglip"}};
  for (const auto& [type, name] : refused) EXPECT_THAT(read_as(type), HasSubstr(str_cat(name, "Tokenizer"))) << type;
}

/// Datasets and checkpoints of before do not say by which rules their files are read: by those of then.
TEST(TokenizerFolders, DatasetsOfBeforeKeepTheirIds) {
  const auto now = open_tokenizer(kFixtures / "tokenizers-more-added");
  json then = json::parse(now->to_json());
  ASSERT_EQ(then.at("rules"), 2);
  then.erase("rules");
  then["vocab_size"] = 1200;
  const auto before = tokenizer_from_json(then.dump());
  EXPECT_EQ(before->to_json(), then.dump());
  EXPECT_EQ(before->vocab_size(), 1200);
  EXPECT_GT(before->encode("a<|user|>b").size(), 3U);
  EXPECT_NE(before->fingerprint(), now->fingerprint());
  // Where the rules make no difference, nothing is said of them and the digest of before is the same.
  EXPECT_FALSE(json::parse(open_tokenizer(kFixtures / "tokenizers-gpt2")->to_json()).contains("rules"));
}

TEST(TokenizerFingerprint, CoversWhatDecidesIdsAndNothingElse) {
  const Bytes bytes = bytes_of_files(kFixtures / "tokenizers-more-added");
  const std::string own = tokenizer_of_files(bytes)->fingerprint();
  const auto with = [&](const char* file, const char* pointer, const json& value) {
    Bytes changed = bytes;
    json all = json::parse(changed[file]);
    all[json::json_pointer(pointer)] = value;
    changed[file] = all.dump(3);
    return tokenizer_of_files(changed)->fingerprint();
  };
  const char* const config = "tokenizer_config.json";
  for (const char* key : {"/model_max_length", "/chat_template", "/padding_side", "/clean_up_tokenization_spaces",
                          "/model_input_names", "/name_or_path", "/tokenizer_class"})
    EXPECT_EQ(with(config, key, key == std::string("/tokenizer_class") ? json("GPT2Tokenizer") : json("x")), own)
        << key;
  EXPECT_EQ(with("tokenizer.json", "/truncation", {{"max_length", 3}}), own);
  EXPECT_EQ(with("tokenizer.json", "/padding", {{"pad_id", 3}}), own);
  EXPECT_EQ(with("tokenizer.json", "/version", "2.0"), own);
  EXPECT_EQ(with("tokenizer.json", "/post_processor", nullptr), own);
  EXPECT_EQ(with("tokenizer.json", "/model/dropout", nullptr), own);
  Bytes more = bytes;
  more["chat_template.jinja"] = "{{ x }}";
  EXPECT_EQ(tokenizer_of_files(more)->fingerprint(), own);
  EXPECT_EQ(with("tokenizer.json", "/pre_tokenizer/trim_offsets", true),
            with("tokenizer.json", "/pre_tokenizer/trim_offsets", false));
  json added = json::parse(bytes.at("tokenizer.json")).at("added_tokens");
  added.push_back({{"id", 1200}, {"content", "<|user|>"}, {"special", true}, {"normalized", false}});
  added.push_back({{"id", 1201}, {"content", "<two>"}, {"special", true}, {"normalized", false}});
  const std::string two = with("tokenizer.json", "/added_tokens", added);
  std::reverse(added.begin(), added.end());
  EXPECT_EQ(with("tokenizer.json", "/added_tokens", added), two) << "in another order";
  added[0]["special"] = false;
  EXPECT_NE(with("tokenizer.json", "/added_tokens", added), two) << "special tokens may be text";
  EXPECT_NE(with("tokenizer.json", "/normalizer", {{"type", "NFC"}}), own);
  EXPECT_NE(with(config, "/added_tokens_decoder/1200/lstrip", true), own);
  EXPECT_NE(with(config, "/eos_token", "<|user|>"), own);
  EXPECT_NE(with(config, "/added_tokens_decoder/1200/content", "<|other|>"), own);
}

TEST(TokenizerFingerprint, IsTheSameInEveryForm) {
  for (const fs::path& path : {kFixtures / "tokenizers-gpt2", kFixtures / "tokenizers-tiktoken",
                               kFixtures / "sentencepiece_bpe_identity/model.model",
                               kFixtures / "tokenizers/llama2_bpe.json", kFixtures / "tokenizers/t5_unigram.json"}) {
    const auto tokenizer = open_tokenizer(path);
    if (!tokenizer->eos_id()) continue;
    const auto exported = tokenizer_of_files(hugging_face_files(*tokenizer, 77).bytes);
    EXPECT_EQ(exported->fingerprint(), tokenizer->fingerprint()) << path;
    EXPECT_EQ(tokenizer_fingerprint(exported->to_json()), tokenizer->fingerprint()) << path;
    EXPECT_TRUE(same_tokenizer(*tokenizer, *exported)) << path;
  }
}

TEST(TokenizerFingerprint, AKindWithoutFilesStaysItselfThroughAnExport) {
  const ashlar::testing::ScratchDir scratch;
  const BytesTokenizer bytes;
  const CharactersTokenizer characters({U'\n', U'a', U'b', 0x65E5});
  for (const Tokenizer* own : {static_cast<const Tokenizer*>(&bytes), static_cast<const Tokenizer*>(&characters)}) {
    const std::string folder = scratch.file(own->identity());
    fs::create_directory(folder);
    for (const auto& [name, text] : hugging_face_files(*own, 512).bytes) std::ofstream(fs::path(folder) / name) << text;
    const auto back = tokenizer_of_path(folder);
    EXPECT_EQ(back->identity(), own->identity());
    EXPECT_EQ(back->to_json(), own->to_json());
    EXPECT_EQ(open_tokenizer(folder)->fingerprint(), own->fingerprint()) << "read as files";
    EXPECT_EQ(corpus_scans(folder).make()->finish()->identity(), own->identity());
  }
  EXPECT_EQ(corpus_scans(scratch.file("bytes")).identity, "bytes");
}

}  // namespace
}  // namespace ashlar::data
