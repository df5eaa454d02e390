#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/base/utf8.h"
#include "core/io/checksum.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/regex.h"

namespace ashlar::data {
namespace {

/// What the Hugging Face library (0.23.3) says of every code point: for a class, how many there are and the CRC-32 of
/// them all in UTF-8; for a normaliser, the bytes and the CRC-32 of what becomes of each, a line each.
struct Known {
  const char* name;
  int64_t count;
  uint32_t crc32;
};
constexpr Known kPatterns[] = {{"\\p{L}", 141028, 0x2ff3bf5aU}, {"\\p{N}", 1911, 0x626c901cU},
                               {"\\p{Lu}", 1858, 0x462c6b3fU},  {"\\p{Lt}", 31, 0x1038f32eU},
                               {"\\p{Lm}", 404, 0x84e50337U},   {"\\p{Lo}", 136477, 0xa67d0dadU},
                               {"\\p{Ll}", 2258, 0x4a203d35U},  {"\\p{M}", 2501, 0x124d7e7cU},
                               {"\\p{P}", 855, 0x90483870U},    {"\\p{S}", 8514, 0xd46f165fU},
                               {"\\s", 25, 0xa0294637U},        {"\\d", 760, 0xbfc8730aU},
                               {"\\w", 144671, 0x03f227ebU},    {"[^\\s\\p{L}\\p{N}]", 969100, 0xd0083c7bU}};

void for_every_code_point(const std::function<void(char32_t)>& visit) {
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (c < 0xD800 || c > 0xDFFF) visit(c);
  }
}

TEST(Unicode, PatternsMatchTheCodePointsOfTheReference) {
  std::string all;
  for_every_code_point([&](char32_t c) { append_utf8(c, all); });
  Regex::Scratch scratch;
  for (const Known& known : kPatterns) {
    const Regex pattern(known.name, Dialect::kOniguruma, "here");
    std::string matched;
    int64_t count = 0;
    pattern.find_all(all, scratch, [&](Span found) {
      matched.append(all, found.begin, found.end - found.begin);
      ++count;
    });
    EXPECT_EQ(count, known.count) << known.name;
    EXPECT_EQ(io::crc32(matched), known.crc32) << known.name;
  }
}

TEST(Unicode, ClassesHaveTheCodePointsOfTheReference) {
  const auto expect = [](bool (*is)(char32_t), const Known& known) {
    std::string all;
    int64_t count = 0;
    for_every_code_point([&](char32_t c) {
      if (!is(c)) return;
      append_utf8(c, all);
      ++count;
    });
    EXPECT_EQ(count, known.count) << known.name;
    EXPECT_EQ(io::crc32(all), known.crc32) << known.name;
  };
  expect(is_white_space, {"WhitespaceSplit", 25, 0xa0294637U});
  expect(is_numeric, {"Digits", 1924, 0x5ac1f41aU});
  expect(is_punctuation, {"Punctuation", 726, 0x6d357c7cU});
  expect(is_word, {"single_word", 144667, 0x0c206d39U});
}

TEST(Unicode, NormalisersMakeWhatTheReferenceMakes) {
  const auto expect = [](const std::function<void(char32_t, std::string&)>& append, const Known& known) {
    std::string all;
    for_every_code_point([&](char32_t c) {
      append(c, all);
      all.push_back('\n');
    });
    EXPECT_EQ(static_cast<int64_t>(all.size()), known.count) << known.name;
    EXPECT_EQ(io::crc32(all), known.crc32) << known.name;
  };
  expect(append_lower, {"Lowercase", 5494634, 0xa4cd6e6dU});
  const auto form = [](NormalForm f) {
    return [f](char32_t c, std::string& out) {
      std::string text;
      append_utf8(c, text);
      out += normalised(f, text);
    };
  };
  expect(form(NormalForm::kNfc), {"NFC", 5494438, 0x351812cbU});
  expect(form(NormalForm::kNfd), {"NFD", 5561947, 0xdcf28980U});
  expect(form(NormalForm::kNfkc), {"NFKC", 5492127, 0x16a21ae0U});
  expect(form(NormalForm::kNfkd), {"NFKD", 5559997, 0x1fdc9ae0U});
}

}  // namespace
}  // namespace ashlar::data
