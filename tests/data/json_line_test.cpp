#include "data/sources/json_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::data {
namespace {

using ::testing::HasSubstr;

std::string field(std::string line, std::string_view name = "text") {
  std::string room = "old";
  return std::string(read_json_field(line, name, room).text);
}

std::string reason(const std::string& line) {
  try {
    field(line);
  } catch (const TextError& e) {
    return e.reason;
  }
  return "accepted";
}

TEST(JsonLine, ReadsTheField) {
  EXPECT_EQ(field(R"({"text":"plain"})"), "plain");
  EXPECT_EQ(field("  { \"a\" : [1, {\"text\": \"inner\"}, []], \"text\" : \"x\" , \"z\":{} }\r"), "x");
  EXPECT_EQ(field(R"({"text":""})"), "");
  EXPECT_EQ(field(R"({"text":"a\"b\\c\/d\b\f\n\r\t\u0041\u00e9\u4e16\ud83d\ude00"})"),
            "a\"b\\c/d\b\f\n\r\tA\u00e9\u4e16\U0001F600");
  EXPECT_EQ(field(R"({"te\u0078t":"by an escaped key"})"), "by an escaped key");
  EXPECT_EQ(field(R"({"text":"first","text":"last"})"), "last");
  EXPECT_EQ(field(R"({"content":"other"})", "content"), "other");
}

TEST(JsonLine, SaysWhatIsWrong) {
  EXPECT_THAT(reason(R"({"id":1,"title":"t"})"),
              ::testing::AllOf(HasSubstr("no field \"text\""), HasSubstr("id, title")));
  EXPECT_THAT(reason(R"({"text":5})"), HasSubstr("not a string"));
  EXPECT_THAT(reason("[1]"), HasSubstr("object"));
  EXPECT_THAT(reason(R"({"text":"a)"), HasSubstr("ends inside a string"));
  EXPECT_THAT(reason("{\"text\":\"\xff\"}"), HasSubstr("0xff"));
  EXPECT_THAT(reason(R"({"text":"\ud83d"})"), HasSubstr("surrogate"));
  EXPECT_THAT(reason(R"({"text":"a"} x)"), HasSubstr("more text"));
  EXPECT_LT(reason("{\"" + std::string(1000, 'k') + "\":1}").size(), 200U);
  EXPECT_THAT(reason(std::string("{\"text\":\"a\",\"b\":") + std::string(100'000, '[')), HasSubstr("deep"));
}

/// The text is written over its line, and elsewhere where replacements would overtake what is still to be read.
TEST(JsonLine, HasTheTextInItsLine) {
  std::string line = R"({"a\u0062":1,"text":"one\ntwo \ud83d\ude00 end"})", room;
  const JsonField read = read_json_field(line, "text", room);
  EXPECT_EQ(read.text, "one\ntwo \U0001F600 end");
  EXPECT_GE(read.text.data(), line.data());
  EXPECT_LT(read.text.data(), line.data() + line.size());
  std::string broken = "{\"\xff\xff\":1,\"text\":\"a\\n\xff\xff\xff\xff\\tz\xff\\ud800\"}";
  const JsonField mended = read_json_field(broken, "text", room, true);
  EXPECT_EQ(mended.text, "a\n\ufffd\ufffd\ufffd\ufffd\tz\ufffd\ufffd");
  EXPECT_EQ(mended.replaced, 8);
}

/// Against nlohmann-json over changed lines: both take a line or both refuse it, and read the same text.
TEST(JsonLine, AgreesWithAnotherParser) {
  std::mt19937_64 random(11);
  const std::string pieces[] = {"a",    "\\n", "\\u00e9", "\\ud83d\\ude00", "\u00e9", "\U0001F600", " ", "\\\"",
                                "\\\\", "{",   "]"};
  const std::string values[] = {"1",     "-0.5e3", "true", "false", "null", "[]", "{}", "[1,[2,{\"k\":\"v\"}]]",
                                "\"s\"", "0",      "1.25"};
  const int trials = testing::long_form() ? 2'000'000 : 60'000;
  int taken = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::string text;
    for (uint64_t k = random() % 6; k > 0; --k) text += pieces[random() % std::size(pieces)];
    std::string line = "{\"id\": " + values[random() % std::size(values)] + ",\"text\":\"" + text +
                       "\" , \"m\":" + values[random() % std::size(values)] + "}";
    for (uint64_t k = random() % 3; k > 0; --k) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0: line[at] = static_cast<char>(line[at] ^ (1 << (random() % 8))); break;
        case 1: line.erase(at, 1); break;
        default: line.insert(at, 1, line[random() % line.size()]);
      }
    }
    // The other parser takes a zero byte for the end of its input.
    if (line.find('\0') != std::string::npos) continue;
    const nlohmann::json other = nlohmann::json::parse(line, nullptr, false);
    const bool good = other.is_object() && other.contains("text") && other["text"].is_string();
    std::string got;
    bool accepted = true;
    try {
      got = field(line);
    } catch (const TextError& e) {
      accepted = false;
      ASSERT_LE(e.offset, line.size());
    }
    // The one difference: a text field of another kind before the last is an error here.
    ASSERT_EQ(accepted, good) << line;
    if (good) {
      ASSERT_EQ(got, other["text"].get<std::string>()) << line;
    }
    taken += good ? 1 : 0;
  }
  EXPECT_GT(taken, trials / 5);
  EXPECT_LT(taken, trials * 4 / 5);
}

}  // namespace
}  // namespace ashlar::data
