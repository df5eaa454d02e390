#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/hugging_face_files.h"
#include "tests/data/tokenizer_fixture.h"

namespace ashlar::data {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> characters_of(std::string_view text) {
  auto scan = corpus_scans("characters").make();
  scan->add(text);
  return scan->finish();
}

TEST(Bytes, EveryByteRoundTrips) {
  const auto tokenizer = corpus_scans("bytes").make()->finish();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->eod_id(), 256);
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  Ids expected(256);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(tokenizer->encode(all), expected);
  expected.insert(expected.begin() + 7, 256);
  EXPECT_EQ(tokenizer->decode(expected), all) << "an end of document has no text";
}

TEST(Characters, IdsAreRanksOfCodePoints) {
  const std::string text = "h\u00e9llo \u4e16\u754c \U0001F600!";
  const auto tokenizer = characters_of(text);
  // Distinct, ascending: ' ' ! e-acute... by code point: 0x20 0x21 0x68 0x6c 0x6f 0xe9 0x4e16 0x754c 0x1f600
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_EQ(tokenizer->eod_id(), 9);
  EXPECT_EQ(tokenizer->encode(text), Ids({2, 5, 3, 3, 4, 0, 6, 7, 0, 8, 1}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->decode(Ids({2, 9, 5, 9})), "h\u00e9") << "an end of document has no text";
}

TEST(Characters, UnknownAndInvalidTextIsPlaced) {
  const auto tokenizer = characters_of("abc");
  const auto error_of = [&](std::string_view text) {
    try {
      tokenizer->encode(text);
    } catch (const TextError& e) {
      return e;
    }
    return TextError{999, "accepted"};
  };
  EXPECT_EQ(error_of("abx").offset, 2U);
  EXPECT_THAT(error_of("abx").reason, HasSubstr("U+0078"));
  EXPECT_EQ(error_of("ab\xff").offset, 2U);
  EXPECT_THAT(error_of("ab\xff").reason, HasSubstr("0xff"));
}

/// Overlong forms, surrogates, values past the last code point, cut sequences, stray continuation bytes.
TEST(Utf8, RefusesWhatTheStandardRefuses) {
  for (const char* bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xed\xbf\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe4\xb8", "\xf0\x9f\x98", "\xc3(", "\xe4(\x96"}) {
    EXPECT_EQ(next_code_point(bad).bytes, 0) << ::testing::PrintToString(std::string(bad));
  }
  for (char32_t c = 1; c <= kLastCodePoint; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, text);
    const CodePoint back = next_code_point(text);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.bytes, static_cast<int>(text.size()));
    ASSERT_EQ(first_split_point(SplitPoints::kCodePoint, text.substr(1)), text.size() - 1);
  }
}

TEST(Tokenizer, ComesBackFromItsJson) {
  const auto characters = characters_of("some text \u00e9");
  const auto bytes = corpus_scans("bytes").make()->finish();
  for (const Tokenizer* tokenizer : {characters.get(), bytes.get()}) {
    const auto back = tokenizer_from_json(tokenizer->to_json());
    EXPECT_EQ(back->identity(), tokenizer->identity());
    EXPECT_EQ(back->hash(), tokenizer->hash());
    EXPECT_EQ(back->encode("some text"), tokenizer->encode("some text"));
  }
  EXPECT_NE(characters->hash(), bytes->hash());
  EXPECT_NE(characters->hash(), characters_of("some text")->hash());
}

/// What an export writes for a kind that is read from no file.
TEST(Tokenizer, KindsAreTheSameAsTokenizerJson) {
  const std::string text = "h\u00e9llo \u4e16\u754c \U0001F600!\n  h";
  std::vector<std::unique_ptr<Tokenizer>> kinds;
  kinds.push_back(corpus_scans("bytes").make()->finish());
  kinds.push_back(characters_of(text));
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind->identity());
    const HuggingFaceFiles files = hugging_face_files(*kind, 512);
    EXPECT_EQ(files.note, "");
    const auto written = tokenizer_from_files({.shown = "written", .bytes = files.bytes});
    EXPECT_EQ(written->vocab_size(), kind->vocab_size());
    EXPECT_EQ(written->eod_id(), kind->eod_id());
    EXPECT_EQ(written->encode(text), kind->encode(text));
    EXPECT_EQ(written->decode(kind->encode(text)), text);
    EXPECT_THAT(files.bytes.at("tokenizer_config.json"), HasSubstr("\"model_max_length\": 512"));
  }
}

TEST(Tokenizer, BadJsonIsAnInputError) {
  for (const char* bad : {"", "{", "[]", "{\"kind\":\"other\"}", "{\"kind\":\"characters\"}",
                          "{\"kind\":\"characters\",\"code_points\":[5,4],\"eod_id\":2,\"vocab_size\":3}",
                          "{\"kind\":\"characters\",\"code_points\":[4,5],\"eod_id\":3,\"vocab_size\":3}",
                          "{\"kind\":\"bytes\",\"eod_id\":255,\"vocab_size\":257}"}) {
    try {
      tokenizer_from_json(bad);
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
    }
  }
  EXPECT_THROW(corpus_scans("sentences"), Error);
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreNamed) {
  const auto tokenizer = corpus_scans("bytes").make()->finish();
  for (const int32_t id : {-1, 257}) {
    EXPECT_THAT(
        [&] {
          tokenizer->decode(Ids{65, id});
        },
        ::testing::ThrowsMessage<Error>(HasSubstr(std::to_string(id))));
  }
}

TEST(CorpusScan, MergedInAnyOrderIsTheSame) {
  auto a = corpus_scans("characters").make(), b = corpus_scans("characters").make();
  EXPECT_EQ(a->add("xyz\u00e9"), 4);
  EXPECT_EQ(b->add("abx"), 3);
  auto c = corpus_scans("characters").make();
  c->merge(*b);
  c->merge(*a);
  a->merge(*b);
  EXPECT_EQ(a->finish()->to_json(), c->finish()->to_json());
  EXPECT_EQ(a->finish()->to_json(), characters_of("abxyz\u00e9")->to_json());
}

}  // namespace
}  // namespace ashlar::data
