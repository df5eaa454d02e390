// Attention gives the same bits whatever the order in which threads and streams run.
#include <gtest/gtest.h>

#include <vector>

#include "core/base/bf16.h"
#include "tests/kernels/cases/attention_call.h"

namespace ashlar {
namespace {

template <typename S>
void expect_same_bits(const testing::AttentionCase& c) {
  SCOPED_TRACE(::testing::PrintToString(c));
  const std::vector<test::BackendUnderTest> schedules = test::backends_under_test();
  testing::AttentionCall<S> first(c);
  first.under_test = schedules.front();
  first.forward();
  first.backward();
  for (const test::BackendUnderTest& other : schedules) {
    testing::AttentionCall<S> again(c);
    again.under_test = other;
    again.forward();
    again.backward();
    EXPECT_TRUE(first.same_bits(again)) << other.name;
  }
}

TEST(AttentionSchedules, ChangeNoBit) {
  const testing::AttentionCase cache{.B = 1, .T_q = 150, .T_kv = 220, .H = 2, .G = 1, .D = 12, .q_start = 70};
  const testing::AttentionCase dropout{.T_q = 200, .T_kv = 200, .H = 4, .G = 2, .D = 64, .p = 0.1, .align = 8};
  const testing::AttentionCase biases{
      .B = 2, .T_q = 150, .T_kv = 150, .H = 4, .G = 2, .D = 16, .p = 0.1, .documents = true, .t5_buckets = 7};
  const testing::AttentionCase both_sides{
      .B = 2, .T_q = 150, .T_kv = 100, .H = 4, .G = 2, .D = 16, .documents = true, .t5_buckets = 7, .causal = false};
  expect_same_bits<float>(both_sides);
  expect_same_bits<BF16>(both_sides);
  expect_same_bits<float>(biases);
  expect_same_bits<BF16>(biases);
  expect_same_bits<float>(cache);
  expect_same_bits<BF16>(cache);
  expect_same_bits<float>(dropout);
  expect_same_bits<BF16>(dropout);
}

}  // namespace
}  // namespace ashlar
