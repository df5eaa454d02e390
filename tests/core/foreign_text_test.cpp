#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/io/json.h"

namespace ashlar::io {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Printable, KeepsTheNameOfAFileInALongPath) {
  const std::string path = "/data/" + std::string(200, 'x') + "/train-00000.h5";
  EXPECT_THAT(printable(path), ::testing::AllOf(::testing::StartsWith("'/data/xxx"), HasSubstr("x...x"),
                                                ::testing::EndsWith("xxx/train-00000.h5'")));
  const std::string brim(120, 'x');
  EXPECT_EQ(printable(brim), "'" + brim + "'");
}

TEST(Printable, EscapesAndCutsHostileNames) {
  EXPECT_EQ(printable("a\nb\x01"), R"('a\nb\x01')");
  EXPECT_EQ(printable(std::string(500, 'x')).size(), 125U);
}

TEST(Printable, KeepsWhatIsReadAndEscapesWhatActs) {
  EXPECT_EQ(printable("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"), "'\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80'");
  EXPECT_EQ(printable("\x1b[2J\x07\x7f"), R"('\x1b[2J\x07\x7f')");
  EXPECT_EQ(printable("\xc2\x9b"), R"('\x9b')") << "a control sequence of one character";
  EXPECT_EQ(printable("\xe2\x80\xae"), R"('\u202e')") << "turns the direction of writing";
  EXPECT_EQ(printable("\xf3\xa0\x81\x81"), R"('\U000e0041')") << "a tag, which nobody sees";
  EXPECT_EQ(printable("it's \\ \xff"), R"('it\'s \\ \xff')");
  EXPECT_EQ(escaped("it's\r"), R"(it's\r)");
  // Two halves of 5 bytes, less the two bytes of a character that would be cut.
  EXPECT_EQ(escaped("abcd\xe4\xb8\xad\xe4\xb8\xad"
                    "efgh",
                    10),
            "abcd...efgh");
}

TEST(OneLine, MessagesKeepTheirLineWhateverIsInThem) {
  EXPECT_EQ(on_one_line("[a] 'x\\n' is \x1b[31m\nashlar: forged"), "[a] 'x\\n' is \\x1b[31m\\nashlar: forged");
  EXPECT_EQ(std::string(input_error("config", "a\nb").what()), "[config] a\\nb");
  EXPECT_LT(std::string(input_error("config", std::string(1'000'000, 'x')).what()).size(), 8100U);
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  log.info("step 1\nstep 2");
  log.warn("\x1b]0;title\x07");
  log.info_once("a\rb");
  log.info_once("a\rb");
  EXPECT_THAT(lines, ::testing::ElementsAre("step 1\\nstep 2", "warning: \\x1b]0;title\\x07", "a\\rb"));
}

TEST(Json, DepthIsBoundedAndEqualKeysAreToldWhereTheyMustDiffer) {
  const auto read = [](const std::string& text, JsonKeys keys) {
    reading_json([](const std::string& sentence) { return input_error("test", sentence); },
                 [&] { parse_json(text, keys); });
  };
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(read(nested(kMaxJsonDepth), JsonKeys::kUnique));
  EXPECT_THAT([&] { read(nested(kMaxJsonDepth + 1), JsonKeys::kLastWins); },
              ThrowsMessage<Error>(HasSubstr("nested deeper than 200 levels at byte 201")));
  EXPECT_THROW(read(std::string(1'000'000, '['), JsonKeys::kLastWins), Error);
  EXPECT_NO_THROW(read(R"({"a":"[[\"[[","b":{"a":[{"a":1},{"a":2}]}})", JsonKeys::kUnique));
  EXPECT_THAT([&] { read(R"({"b":{"x":1},"c":[{"a":1,"\u0061":2}]})", JsonKeys::kUnique); },
              ThrowsMessage<Error>(HasSubstr("it has the key 'a' twice")));
  EXPECT_EQ(parse_json(R"({"a":1,"a":2})")["a"], 2);
  EXPECT_EQ(try_parse_json(nested(kMaxJsonDepth + 1)), std::nullopt);
  EXPECT_EQ(try_parse_json(R"({"a":1,"a":2})", JsonKeys::kUnique), std::nullopt);
}

}  // namespace
}  // namespace ashlar::io
