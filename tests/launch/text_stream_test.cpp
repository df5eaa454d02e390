// Text of ids that come one after the other is the text of all of them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

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
  EXPECT_EQ(silent, 3) << "three of the four bytes of the unicorn";
  EXPECT_EQ(stream.rest(), "");
  // Cut off within it, what there is comes at the end.
  TextStream cut(*tokenizer, first);
  for (size_t i = 1; i + 3 < ids.size(); ++i) cut.add(ids[i]);
  EXPECT_FALSE(cut.rest().empty());
}

}  // namespace
}  // namespace ashlar::inference
