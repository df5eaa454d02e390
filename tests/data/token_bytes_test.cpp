#include "data/tokenizer/token_bytes.h"

#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "data/read/batch.h"
#include "tests/data/tokenizer_fixture.h"

namespace ashlar::data {
namespace {

/// The bytes of the ids of one document.
int64_t sum_of(const TokenBytes& bytes, const Ids& ids) {
  int64_t sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) sum += bytes.of(ids[i], i == 0);
  return sum;
}

TEST(TokenBytes, AByteCountsOneACharacterItsUtf8AndAnEndNothing) {
  const auto byte_tokenizer = corpus_scans("bytes").make()->finish();
  const TokenBytes bytes(*byte_tokenizer);
  EXPECT_EQ(bytes.eod_id(), 256);
  EXPECT_EQ(sum_of(bytes, {0, 0xff, 256, 65}), 3);
  auto scan = corpus_scans("characters").make();
  scan->add("a\u00e9\u4e16\U0001F600");
  const auto tokenizer = scan->finish();
  const TokenBytes characters(*tokenizer);
  EXPECT_EQ(characters.of(0, false), 1);
  EXPECT_EQ(characters.of(1, false), 2);
  EXPECT_EQ(characters.of(2, false), 3);
  EXPECT_EQ(characters.of(3, true), 4);
  EXPECT_EQ(characters.of(4, false), 0);
}

/// Of every tokenizer of the fixtures: the tokens of a text add up to its bytes, to the byte, also where characters are
/// cut into several tokens and a space was added before the text.
TEST(TokenBytes, TheTokensOfATextAddUpToItsBytes) {
  std::vector<std::filesystem::path> tokenizers = {kFixtures / "tokenizers-gpt2", kFixtures / "tokenizers-tiktoken",
                                                   kFixtures / "tokenizers-qwen2"};
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures / "tokenizers"))
    if (entry.path().extension() == ".json") tokenizers.push_back(entry.path());
  for (const char* folder : {"bpe_identity", "unigram_identity", "unigram_nmt_nfkc"})
    tokenizers.push_back(kFixtures / str_cat("sentencepiece_", folder));
  const std::string ascii = "The cat (12) sat;\n  on   the mat. x = y[3] + 0.5",
                    unusual =
                        "caf\u00e9 na\u00efve \u4e16\u754c \U0001F600 \u0905\u0928\u0941 "
                        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 end";
  int exact = 0, cut = 0;
  for (const auto& path : tokenizers) {
    const auto tokenizer = open_tokenizer(path.string());
    const TokenBytes bytes(*tokenizer);
    for (const std::string& text : {ascii, unusual, std::string("a"), std::string(" a b")}) {
      Ids ids;
      try {
        tokenizer->encode(text, ids);
      } catch (const TextError&) {
        continue;
      }
      if (tokenizer->decode(ids) != text) continue;  // the tokenizer changes this text
      EXPECT_EQ(sum_of(bytes, ids), static_cast<int64_t>(text.size())) << path << ": " << text;
      ++exact;
      for (const int32_t id : ids) cut += tokenizer->decode(Ids{id}) == "\xef\xbf\xbd" ? 1 : 0;
    }
  }
  EXPECT_GE(exact, 30);
  EXPECT_GT(cut, 5) << "some tokens are parts of characters";
}

/// Counted by hand: of "ab" end "c e-acute" the targets that the loss counts.
TEST(TokenBytes, ABatchCountsItsValidTargets) {
  auto scan = corpus_scans("characters").make();
  scan->add("abc\u00e9");
  const auto tokenizer = scan->finish();
  const TokenBytes bytes(*tokenizer);
  const int32_t end = tokenizer->eod_id();
  const std::vector<int32_t> tokens = {0, 1, end, 2, 3, 3};
  Batch batch;
  for (const bool mask : {false, true}) {
    const DocumentRule rule{.mask = mask};
    resize_batch(batch, 1, 6, rule);  // the sixth target is behind the end of the part
    fill_row(batch, 0, tokens, end, rule);
    // Targets b (1 byte), end (0), c (1, masked: not counted), e-acute (2), e-acute (2).
    EXPECT_EQ(batch.valid_targets, mask ? 4 : 5);
    EXPECT_EQ(text_bytes(batch, bytes), mask ? 5 : 6);
  }
}

/// After an end of document, a token has no added space.
TEST(TokenBytes, ABatchKnowsWhereDocumentsBegin) {
  const auto tokenizer = open_tokenizer((kFixtures / "tokenizers/llama2_bpe.json").string());
  const TokenBytes bytes(*tokenizer);
  Ids tokens = tokenizer->encode("one");
  tokens.push_back(tokenizer->eod_id());
  for (const int32_t id : tokenizer->encode("two")) tokens.push_back(id);
  Batch batch;
  resize_batch(batch, 1, static_cast<int64_t>(tokens.size()) - 1, {});
  fill_row(batch, 0, tokens, tokenizer->eod_id(), {});
  EXPECT_EQ(text_bytes(batch, bytes), 3 + 3 - bytes.of(tokens[0], true)) << "the first token is no target";
}

TEST(TokenBytes, SpecialTokensStandForNoText) {
  const auto tokenizer = open_tokenizer((kFixtures / "tokenizers/llama2_bpe.json").string());
  const TokenBytes bytes(*tokenizer);
  for (const char* name : {"<s>", "</s>", "<unk>"}) {
    const auto id = tokenizer->id_of(name);
    ASSERT_TRUE(id) << name;
    EXPECT_EQ(bytes.of(*id, false), 0) << name;
  }
  const Ids ids = tokenizer->encode("a");
  EXPECT_EQ(bytes.of(ids[0], true) + 1, bytes.of(ids[0], false)) << "without and with the space before";
}

}  // namespace
}  // namespace ashlar::data
