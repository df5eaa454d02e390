// Attention that is not causal: keys on both sides of a query, keys of another source.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/cases/attention_call.h"

namespace ashlar {
namespace {

using testing::check_against_reference;
using Case = testing::AttentionCase;
template <typename S>
using Call = testing::AttentionCall<S>;

/// Not causal: queries and keys of other numbers and positions, and every option with keys on both sides.
std::vector<Case> both_sides() {
  std::vector<Case> cases;
  for (const int64_t T : {1, 3, 33, 64, 65, 130}) {
    cases.push_back({.B = 2, .T_q = T, .T_kv = T, .H = 2, .G = 2, .D = 12, .causal = false});
  }
  for (const auto& [T_q, T_kv] : {std::pair<int64_t, int64_t>{70, 33}, {33, 150}, {1, 200}, {130, 1}, {64, 128}}) {
    cases.push_back({.B = 2, .T_q = T_q, .T_kv = T_kv, .H = 4, .G = 2, .D = 16, .align = 8, .causal = false});
    cases.push_back({.T_q = T_q, .T_kv = T_kv, .H = 2, .G = 1, .D = 20, .q_start = 3, .p = 0.2, .causal = false});
  }
  for (const int64_t D : {64, 96, 128, 256})
    cases.push_back({.T_q = 70, .T_kv = 150, .H = 2, .G = 1, .D = D, .align = 8, .causal = false});
  for (const int64_t window : {1, 31, 65, 1000})
    cases.push_back({.B = 2, .T_q = 150, .T_kv = 150, .H = 2, .G = 1, .D = 16, .window = window, .causal = false});
  for (const int64_t chunk : {1, 48, 130})
    cases.push_back({.T_q = 200, .T_kv = 200, .H = 2, .G = 2, .D = 12, .chunk = chunk, .causal = false});
  // the last queries, or the first, see no key
  cases.push_back({.T_q = 100, .T_kv = 40, .H = 2, .G = 1, .D = 16, .window = 20, .causal = false});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 1, .D = 16, .kv_start = 80, .window = 33, .causal = false});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 1, .D = 16, .kv_start = 31, .chunk = 50, .causal = false});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 1, .D = 16, .q_start = 40, .window = 33, .causal = false});
  cases.push_back({.B = 2, .T_q = 140, .T_kv = 140, .H = 2, .G = 1, .D = 16, .documents = true, .causal = false});
  cases.push_back({.T_q = 66, .T_kv = 136, .H = 2, .G = 1, .D = 12, .q_start = 70, .documents = true, .causal = false});
  cases.push_back({.T_q = 136, .T_kv = 40, .D = 12, .kv_start = 50, .documents = true, .sinks = true, .causal = false});
  for (const int64_t D : {16, 64}) {
    cases.push_back({.T_q = 130, .T_kv = 90, .H = 3, .G = 1, .D = D, .align = 8, .alibi = true, .causal = false});
    cases.push_back({.T_q = 90, .T_kv = 130, .H = 2, .G = 1, .D = D, .softcap = 2, .sinks = true, .causal = false});
  }
  for (const int64_t buckets : {1, 2, 7, 32})
    cases.push_back({.B = 2, .T_q = 90, .T_kv = 150, .H = 2, .G = 1, .D = 16, .t5_buckets = buckets, .causal = false});
  cases.push_back({.B = 2,
                   .T_q = 140,
                   .T_kv = 140,
                   .H = 4,
                   .G = 2,
                   .D = 20,
                   .p = 0.2,
                   .documents = true,
                   .window = 30,
                   .softcap = 2,
                   .alibi = true,
                   .sinks = true,
                   .D_v = 12,
                   .t5_buckets = 6,
                   .causal = false});
  return cases;
}

class AttentionBothSides : public ::testing::TestWithParam<test::BackendUnderTest> {
 protected:
  template <typename S>
  void check_each() {
    int64_t problems = 0;
    for (const Case& c : both_sides()) {
      if (GetParam().gets(problems++)) check_against_reference<S>(c, GetParam());
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(AttentionBothSides, Fp32EqualsReference) { check_each<float>(); }
TEST_P(AttentionBothSides, Bf16EqualsReference) { check_each<BF16>(); }
TEST_P(AttentionBothSides, Fp64EqualsReference) { check_each<double>(); }
// Every backend gets them: keys that end a tile early or late for one query, on both sides of it.
TEST_P(AttentionBothSides, MasksMayBeginAndEndInsideATile) {
  for (const Case& c : std::vector<Case>{
           {.T_q = 150, .T_kv = 200, .H = 2, .G = 1, .D = 16, .window = 50, .causal = false},
           {.T_q = 140, .T_kv = 140, .H = 1, .G = 1, .D = 16, .documents = true, .causal = false},
           {.T_q = 70, .T_kv = 130, .H = 2, .G = 1, .D = 16, .kv_start = 31, .chunk = 50, .causal = false},
           {.T_q = 65, .T_kv = 129, .H = 2, .G = 1, .D = 16, .alibi = true, .t5_buckets = 9, .causal = false}}) {
    check_against_reference<BF16>(c, GetParam());
    check_against_reference<float>(c, GetParam());
  }
}
INSTANTIATE_TEST_SUITE_P(Every, AttentionBothSides, ::testing::ValuesIn(test::backends_under_test()),
                         [](const auto& at) { return at.param.name; });

class AttentionSides : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::long_form() && !test::backends_under_test()[0].properties)
      GTEST_SKIP() << "the same bits are asked for it elsewhere";
  }
};

/// Without a mask and positions attention is a function of the set of keys with their values.
TEST_F(AttentionSides, KeysInAnotherOrderGiveTheSame) {
  const Case c{.T_q = 40, .T_kv = 90, .H = 2, .G = 1, .D = 8, .causal = false};
  Call<double> run(c), turned(c);
  for (int64_t j = 0; j < c.T_kv; ++j) {
    std::copy_n(run.kvs.begin() + (c.T_kv - 1 - j) * run.kv_stride, run.kv_stride,
                turned.kvs.begin() + j * run.kv_stride);
  }
  for (Call<double>* call : {&run, &turned}) {
    call->forward();
    call->backward();
  }
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12);
  };
  near(run.out_rows(run.out), turned.out_rows(turned.out));
  near(run.q_rows(run.dqs), turned.q_rows(turned.dqs));
  EXPECT_NE(run.k_rows(run.dkvs), turned.k_rows(turned.dkvs));
}

/// Neighbours of a mask of both sides.
TEST_F(AttentionSides, TellsMasksOfBothSidesApart) {
  const auto out = [](const Case& c) {
    Call<double> run(c);
    run.forward();
    return run.out_rows(run.out);
  };
  const Case c{.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .causal = false};
  const auto changed = [&](const auto& change) {
    Case other = c;
    change(other);
    return out(other);
  };
  const auto plain = out(c), causal = changed([](Case&v) { v.causal = true; });
  // The last query sees what a causal one does, no other query does.
  EXPECT_TRUE(std::equal(plain.end() - 16, plain.end(), causal.end() - 16));
  EXPECT_NE(plain[0], causal[0]);
  // A window of one token is the token itself, one of all tokens hides nothing, one less hides an end from the other.
  EXPECT_EQ(changed([](Case& v) { v.window = 1; }), changed([](Case& v) { v.window = 1, v.causal = true; }));
  EXPECT_EQ(changed([](Case& v) { v.window = 40; }), plain);
  const auto shorter = changed([](Case& v) { v.window = 39; });
  EXPECT_TRUE(std::equal(plain.begin() + 16, plain.end() - 16, shorter.begin() + 16));
  EXPECT_NE(shorter[0], plain[0]);
  EXPECT_NE(shorter.back(), plain.back());
  // ALiBi is a table that falls with the distance on both sides.
  Call<double> sloped({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .alibi = true, .causal = false});
  Call<double> table({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .t5_buckets = 79, .causal = false});
  table.qs = sloped.qs;
  table.t5_buckets.clear();
  for (int32_t n = 0; n < 79; ++n) {
    table.t5_buckets.push_back(n);
    for (int64_t h = 0; h < 2; ++h) table.t5_bias[n * table.t5_stride() + h] = -sloped.slopes[h] * std::abs(n - 39);
  }
  table.shape.scores.t5_buckets = test::view_of(table.t5_buckets);
  sloped.forward();
  table.forward();
  for (size_t i = 0; i < table.out.size(); ++i) EXPECT_NEAR(table.out[i], sloped.out[i], 1e-13);
}

}  // namespace
}  // namespace ashlar
