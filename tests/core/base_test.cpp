#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/base/bf16.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/base/fixed_text.h"
#include "core/base/log.h"
#include "core/tensor/shape.h"

namespace ashlar {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(BF16(1.0F).bits, 0x3f80);
  EXPECT_EQ(BF16(1.00390625F).bits, 0x3f80);  // half way between 1 and 1 + 2^-7: to even
  EXPECT_EQ(BF16(1.01171875F).bits, 0x3f82);  // half way the other side: to even
  EXPECT_EQ(BF16(1.0039064F).bits, 0x3f81);   // a hair above half way
  EXPECT_EQ(BF16(-2.5F).bits, 0xc020);
  EXPECT_EQ(BF16(std::numeric_limits<float>::max()).bits, 0x7f80);  // beyond the largest bf16: infinity
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(static_cast<float>(BF16(0.15625F)), 0.15625F);
}

TEST(DTypes, NamesAndSizes) {
  EXPECT_EQ(name_of(DType::kBFloat16), "bf16");
  EXPECT_EQ(size_of(DType::kBFloat16), 2);
  EXPECT_EQ(size_of(DType::kFloat64), 8);
  EXPECT_EQ(accumulate_dtype(DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(accumulate_dtype(DType::kFloat64), DType::kFloat64);
}

TEST(Errors, SayWhereAndCarryTheirCode) {
  const Error e = damaged_error("data", "chunk ", 7, " of ", std::string_view("x.h5"));
  EXPECT_STREQ(e.what(), "[data] chunk 7 of x.h5");
  EXPECT_EQ(static_cast<int>(e.code()), 3);
  EXPECT_THROW(ASHLAR_CHECK(1 == 2, "one is ", 1), Bug);
}

TEST(Errors, AreQuotedWithoutTheirPlace) {
  EXPECT_EQ(text_of(input_error("config", "a = [1] is wrong")), "a = [1] is wrong");
  EXPECT_EQ(text_of(input_error("data build", "no input")), "no input") << "a place of two words";
  EXPECT_EQ(text_of("no place] here"), "no place] here");
  EXPECT_EQ(text_of("[1, 2]"), "[1, 2]");
}

TEST(Shapes, RowsAreAllButTheLast) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s.cols(), 5);
  EXPECT_EQ(s.size(), 30);
  EXPECT_EQ(s.str(), "[2, 3, 5]");
  EXPECT_NE(s, (Shape{6, 5}));
}

TEST(FixedTexts, AreCutWhereTheMemoryEnds) {
  std::array<char, 12> memory;
  memory.fill('x');
  const std::span<char> ten(memory.data(), 10);
  EXPECT_EQ(FixedText(ten).add("rank ").add(-3).text(), "rank -3");
  EXPECT_EQ(FixedText(ten).add("step ").add(uint64_t{18446744073709551615u}).add("!").text(), "step 18446");
  EXPECT_EQ(memory[10], 'x');
  EXPECT_EQ(FixedText({}).add("a").add(1).text(), "");
}

TEST(Logs, KeepWarningsAndSayOnceOnce) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  log.info_once("a");
  log.info_once("a");
  log.warn("b");
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "warning: b"}));
  EXPECT_EQ(log.warnings(), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace ashlar
