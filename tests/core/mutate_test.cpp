#include "tests/support/mutate.h"

#include <gtest/gtest.h>

#include <set>

#include "core/io/json.h"

namespace ashlar::testing {
namespace {

TEST(Mutate, IsAPureFunctionThatChangesItsInput) {
  const std::string input = R"({"numbers": [1, 2, 3], "text": "abc"})";
  std::set<std::string> all;
  int changed = 0;
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const std::string text = mutated(input, 7, trial);
    EXPECT_EQ(text, mutated(input, 7, trial));
    changed += text != input ? 1 : 0;
    all.insert(text);
  }
  EXPECT_GE(changed, 190);
  EXPECT_GE(all.size(), 150U);
  EXPECT_NE(mutated(input, 8, 3), mutated(input, 7, 3));
  for (uint64_t trial = 0; trial < 50; ++trial) mutated("", 7, trial);
}

TEST(Mutate, JsonIsBounded) {
  expect_bounded({.inputs = {R"({"numbers": [1, 2, 3], "text": "abc"})", "[[1], {}]"}}, [](const std::string& input) {
    io::reading_json([](const std::string& sentence) { return input_error("test", sentence); },
                     [&] { io::parse_json(input); });
  });
}

}  // namespace
}  // namespace ashlar::testing
