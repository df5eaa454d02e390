// Text of ids that come one after the other is the text of all of them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/philox.h"
#include "core/base/utf8.h"
#include "data/tokenizer/bytes_tokenizer.h"
#include "data/tokenizer/forms.h"
#include "launch/inference/text_stream.h"

namespace ashlar::inference {
namespace {

/// Of each tokenizer the texts of its vectors, cut behind each id in turn: before it the prompt, behind it the stream.
TEST(TextStream, PutTogetherIsTheTextOfAllIds) {
  for (const char* name :
       {"llama2_bpe", "mistral_metaspace", "gemma_bpe", "pythia_neox", "t5_unigram", "prefix_space"}) {
    const std::string stem = std::string(ASHLAR_SOURCE_DIR "/tests/data/fixtures/tokenizers/") + name;
    const auto tokenizer = data::open_tokenizer(stem + ".json");
    std::ifstream rows(stem + ".jsonl");
    int64_t compared = 0;
    for (std::string line; std::getline(rows, line);) {
      const auto ids = nlohmann::json::parse(line).at("ids").get<std::vector<int32_t>>();
      if (ids.size() < 2 || ids.size() > 40) continue;
      const std::string whole = tokenizer->decode(ids);
      if (whole.find("\xEF\xBF\xBD") != std::string::npos) continue;  // no text of its own
      for (size_t cut = 1; cut < ids.size(); ++cut) {
        const std::span<const int32_t> before = std::span(ids).first(cut);
        const std::string prompt = tokenizer->decode(before);
        if (!whole.starts_with(prompt)) continue;  // cut within a character
        TextStream stream(*tokenizer, before);
        std::string text = prompt;
        for (size_t i = cut; i < ids.size(); ++i) text += stream.add(ids[i]);
        text += stream.rest();
        EXPECT_EQ(text, whole) << name << " cut behind " << cut;
        ++compared;
      }
    }
    EXPECT_GT(compared, 100) << name;
  }
}

/// Each piece is told as soon as it is certain: words at once, a character of several ids with its last.
TEST(TextStream, WaitsForTheRestOfACharacterAlone) {
  const auto tokenizer = data::open_tokenizer(ASHLAR_SOURCE_DIR "/tests/data/fixtures/tokenizers/llama2_bpe.json");
  const std::vector<int32_t> ids = tokenizer->encode("a b \xF0\x9F\xA6\x84 c");
  const std::vector<int32_t> first(ids.begin(), ids.begin() + 1);
  TextStream stream(*tokenizer, first);
  std::string text;
  int64_t silent = 0;
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::string piece = stream.add(ids[i]);
    silent += piece.empty() ? 1 : 0;
    text += piece;
  }
  EXPECT_EQ(text, " b \xF0\x9F\xA6\x84 c");
  EXPECT_EQ(silent, 4) << "the bytes of the unicorn: one more could make none of them a character";
  EXPECT_EQ(stream.rest(), "");
  // Cut off within it, what there is comes at the end.
  TextStream cut(*tokenizer, first);
  for (size_t i = 1; i + 3 < ids.size(); ++i) cut.add(ids[i]);
  EXPECT_FALSE(cut.rest().empty());
}

bool whole_characters(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int n = next_code_point(text.substr(at)).bytes;
    if (n == 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

/// A model that has learnt nothing draws any ids: bytes that make no character, runs of them, special tokens within.
TEST(TextStream, AnyIdsGiveTheTextOfTheWholeInWholeCharacters) {
  for (const char* name : {"llama2_bpe", "mistral_metaspace", "gemma_bpe", "pythia_neox", "t5_unigram", "prefix_space",
                           "xlmr_like", "deepseek_split", "added_tokens"}) {
    const auto tokenizer =
        data::open_tokenizer(std::string(ASHLAR_SOURCE_DIR "/tests/data/fixtures/tokenizers/") + name + ".json");
    std::vector<int32_t> bytes;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->is_byte(id)) bytes.push_back(id);
    }
    for (uint64_t trial = 0; trial < 200; ++trial) {
      const std::vector<int32_t> before = tokenizer->encode("The cat");
      std::vector<int32_t> ids = before;
      for (uint64_t i = 0; i < 24; ++i) {
        const Philox::Counter w = Philox::block(3, trial, i);
        const bool byte = !bytes.empty() && w[0] % 3 != 0;
        ids.push_back(byte ? bytes[w[1] % bytes.size()]
                           : static_cast<int32_t>(w[1] % static_cast<uint32_t>(tokenizer->vocab_size())));
      }
      TextStream stream(*tokenizer, before);
      std::string text = tokenizer->decode(before);
      for (size_t i = before.size(); i < ids.size(); ++i) {
        const std::string piece = stream.add(ids[i]);
        ASSERT_TRUE(whole_characters(piece)) << name << " trial " << trial << " id " << i;
        text += piece;
      }
      text += stream.rest();
      ASSERT_EQ(text, tokenizer->decode(ids)) << name << " trial " << trial;
    }
  }
}

/// Ids that are bytes decode to bytes, of which a part of a character stays behind.
TEST(TextStream, IdsThatAreBytesComeInWholeCharacters) {
  const data::BytesTokenizer tokenizer;
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x84.";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  TextStream stream(tokenizer, {});
  std::string told;
  for (const int32_t id : ids) {
    const std::string piece = stream.add(id);
    EXPECT_TRUE(whole_characters(piece)) << told.size();
    told += piece;
  }
  EXPECT_EQ(told, text);
}

/// The library of SentencePiece decodes runs of bytes in its own way.
TEST(TextStream, SentencePieceTooGivesTheTextOfTheWhole) {
  const auto tokenizer =
      data::open_tokenizer(ASHLAR_SOURCE_DIR "/tests/data/fixtures/sentencepiece_bpe_identity/model.model");
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const std::vector<int32_t> before = tokenizer->encode("The cat");
    std::vector<int32_t> ids = before;
    for (uint64_t i = 0; i < 24; ++i) {
      const Philox::Counter w = Philox::block(4, trial, i);
      const uint32_t range = w[0] % 2 == 0 ? 259U : static_cast<uint32_t>(tokenizer->vocab_size());
      ids.push_back(static_cast<int32_t>(w[1] % range));
    }
    TextStream stream(*tokenizer, before);
    std::string text = tokenizer->decode(before);
    for (size_t i = before.size(); i < ids.size(); ++i) {
      const std::string piece = stream.add(ids[i]);
      ASSERT_TRUE(whole_characters(piece)) << "trial " << trial << " id " << i;
      text += piece;
    }
    text += stream.rest();
    ASSERT_EQ(text, tokenizer->decode(ids)) << "trial " << trial;
  }
}

}  // namespace
}  // namespace ashlar::inference
