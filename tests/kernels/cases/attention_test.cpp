#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/base/philox.h"
#include "tests/kernels/cases/attention_call.h"

namespace ashlar {
namespace {

using testing::AttentionReference;
using testing::check_against_reference;

template <typename S>
using Call = testing::AttentionCall<S>;
using Case = testing::AttentionCase;

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const int64_t T : {1, 3, 29, 33, 64, 65, 130}) {
    for (const int64_t D : {4, 12, 64}) cases.push_back({.B = 2, .T_q = T, .T_kv = T, .H = 2, .G = 2, .D = D});
  }
  for (const int64_t D : {16, 80, 96, 128, 200, 256}) cases.push_back({.T_q = 33, .T_kv = 33, .H = 2, .G = 1, .D = D});
  for (const int64_t G : {1, 2, 4}) cases.push_back({.B = 2, .T_q = 70, .T_kv = 70, .H = 4, .G = G, .D = 16});
  cases.push_back({.T_q = 257, .T_kv = 257, .H = 1, .G = 1, .D = 64});
  // a cache: one query or a chunk against earlier keys; keys that begin later than the first queries
  for (const int64_t T_q : {1, 5, 66}) {
    cases.push_back({.B = 2, .T_q = T_q, .T_kv = T_q + 70, .H = 4, .G = 2, .D = 16, .q_start = 70});
    cases.push_back({.T_q = T_q, .T_kv = 200, .H = 2, .G = 1, .D = 12, .q_start = 97});
  }
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 0, .kv_start = 31});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 130, .kv_start = 40, .p = 0.2});
  // sequence_length 204: a row of dropout begins a block, the first key does not
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 131, .kv_start = 42, .p = 0.2});
  cases.push_back({.B = 2, .T_q = 140, .T_kv = 140, .H = 2, .G = 1, .D = 16, .documents = true});
  cases.push_back({.T_q = 66, .T_kv = 136, .H = 2, .G = 1, .D = 12, .q_start = 70, .documents = true});
  for (const int64_t T : {5, 33, 65, 129}) {
    cases.push_back({.B = 2, .T_q = T, .T_kv = T, .H = 4, .G = 2, .D = 12, .p = 0.3});
  }
  cases.push_back({.T_q = 100, .T_kv = 100, .H = 2, .G = 1, .D = 16, .p = 0.1, .documents = true});
  cases.push_back({.T_q = 40, .T_kv = 40, .D = 16, .scale = -0.7});
  return cases;
}

/// bf16 rows that a kernel may read in vectors, of 16 bytes and of fewer; several tiles of keys and of queries in each.
std::vector<Case> vector_rows() {
  std::vector<Case> cases;
  for (const int64_t D : {16, 32, 64, 96, 128}) {
    cases.push_back({.T_q = 200, .T_kv = 200, .H = 2, .G = 1, .D = D, .align = 8});
    cases.push_back({.T_q = 150, .T_kv = 150, .H = 2, .G = 1, .D = D, .p = 0.2, .documents = true, .align = 8});
  }
  for (const int64_t align : {2, 4, 8}) {
    cases.push_back({.B = 2, .T_q = 70, .T_kv = 150, .H = 4, .G = 2, .D = 20, .q_start = 80, .align = align});
  }
  cases.push_back({.T_q = 140, .T_kv = 140, .H = 2, .G = 1, .D = 256, .p = 0.2, .align = 8});
  return cases;
}

/// Head widths between the tiles of kernels, and beyond them.
std::vector<Case> odd_widths() {
  std::vector<Case> cases;
  for (const int64_t D : {1, 3, 17, 31, 33, 65, 97, 127, 129, 257, 510}) {
    cases.push_back(
        {.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = D, .p = D % 4 == 3 ? 0.2 : 0, .documents = D % 4 == 3});
  }
  cases.push_back({.T_q = 66, .T_kv = 130, .H = 1, .G = 1, .D = 512, .q_start = 64, .align = 8});
  return cases;
}

/// What changes which keys are seen, and what the scores are: windows and chunks that begin and end inside tiles and at
/// their edges, alone and with documents, caches and dropout.
std::vector<Case> variants() {
  std::vector<Case> cases;
  for (const int64_t window : {1, 31, 64, 65, 1000}) {
    cases.push_back({.B = 2, .T_q = 150, .T_kv = 150, .H = 2, .G = 1, .D = 16, .window = window});
  }
  for (const int64_t chunk : {1, 48, 130}) {
    cases.push_back({.T_q = 200, .T_kv = 200, .H = 2, .G = 2, .D = 12, .chunk = chunk});
  }
  cases.push_back({.T_q = 300, .T_kv = 300, .H = 4, .G = 1, .D = 64, .p = 0.2, .align = 8, .window = 70});
  cases.push_back({.B = 2, .T_q = 140, .T_kv = 140, .H = 2, .G = 1, .D = 32, .documents = true, .window = 40});
  cases.push_back({.T_q = 66, .T_kv = 200, .H = 2, .G = 1, .D = 16, .q_start = 134, .window = 50});
  cases.push_back({.T_q = 1, .T_kv = 200, .H = 2, .G = 1, .D = 16, .q_start = 199, .window = 70});
  cases.push_back(
      {.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 131, .kv_start = 42, .p = 0.2, .window = 33});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 131, .kv_start = 42, .chunk = 50});
  for (const int64_t D : {16, 64, 96}) {
    cases.push_back({.T_q = 130, .T_kv = 130, .H = 2, .G = 1, .D = D, .align = 8, .softcap = 1.5});
    cases.push_back({.T_q = 130, .T_kv = 130, .H = 3, .G = 1, .D = D, .align = 8, .alibi = true});
  }
  cases.push_back({.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 128, .softcap = 30});
  cases.push_back({.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 256, .align = 8, .softcap = 30, .alibi = true});
  cases.push_back({.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 32, .scale = -0.3, .softcap = 2});
  cases.push_back({.B = 2,
                   .T_q = 100,
                   .T_kv = 100,
                   .H = 4,
                   .G = 2,
                   .D = 20,
                   .p = 0.2,
                   .documents = true,
                   .window = 30,
                   .softcap = 2,
                   .alibi = true,
                   .sinks = true});
  cases.push_back({.T_q = 5, .T_kv = 80, .H = 3, .G = 1, .D = 12, .q_start = 75, .alibi = true});
  for (const int64_t D : {16, 64}) {
    cases.push_back({.B = 2, .T_q = 130, .T_kv = 130, .H = 4, .G = 2, .D = D, .align = 8, .sinks = true});
  }
  // the first queries see no key
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 0, .kv_start = 31, .sinks = true});
  return cases;
}

/// Tables of biases: few and many buckets, more than there are distances; caches, documents, windows and all else.
std::vector<Case> biases() {
  std::vector<Case> cases;
  for (const int64_t buckets : {1, 2, 7, 32}) {
    cases.push_back({.B = 2, .T_q = 150, .T_kv = 150, .H = 4, .G = 2, .D = 16, .align = 8, .t5_buckets = buckets});
  }
  for (const int64_t T : {1, 3, 64, 65})
    cases.push_back({.T_q = T, .T_kv = T, .H = 2, .G = 1, .D = 12, .t5_buckets = 5});
  for (const int64_t D : {64, 96, 256}) {
    cases.push_back({.T_q = 130, .T_kv = 130, .H = 3, .G = 1, .D = D, .align = 8, .t5_buckets = 9});
  }
  cases.push_back({.T_q = 70, .T_kv = 70, .H = 2, .G = 2, .D = 16, .t5_buckets = 300});
  cases.push_back({.B = 2, .T_q = 66, .T_kv = 200, .H = 2, .G = 1, .D = 16, .q_start = 134, .t5_buckets = 12});
  cases.push_back({.B = 2, .T_q = 1, .T_kv = 200, .H = 2, .G = 1, .D = 16, .q_start = 199, .t5_buckets = 12});
  // the first queries see no key
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .kv_start = 31, .t5_buckets = 4});
  cases.push_back({.B = 2,
                   .T_q = 140,
                   .T_kv = 140,
                   .H = 2,
                   .G = 1,
                   .D = 20,
                   .p = 0.2,
                   .documents = true,
                   .window = 50,
                   .softcap = 2,
                   .alibi = true,
                   .sinks = true,
                   .D_v = 12,
                   .t5_buckets = 6});
  return cases;
}

/// Values wider and narrower than keys.
std::vector<Case> value_widths() {
  std::vector<Case> cases;
  for (const auto& [D, D_v] : {std::pair<int64_t, int64_t>{24, 16}, {16, 24}, {192, 128}, {5, 130}, {130, 5}}) {
    cases.push_back({.B = 2, .T_q = 70, .T_kv = 70, .H = 4, .G = 2, .D = D, .D_v = D_v});
    cases.push_back({.T_q = 9, .T_kv = 75, .H = 2, .G = 1, .D = D, .q_start = 66, .p = 0.2, .window = 40, .D_v = D_v});
  }
  return cases;
}

class AttentionOn : public ::testing::TestWithParam<test::BackendUnderTest> {
 protected:
  template <typename S>
  void check_each(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      if (GetParam().gets(problems_++)) check_against_reference<S>(c, GetParam());
      if (HasFatalFailure()) return;
    }
  }

 private:
  int64_t problems_ = 0;
};

TEST_P(AttentionOn, Fp32EqualsReference) { check_each<float>(grid()); }
TEST_P(AttentionOn, Bf16EqualsReference) { check_each<BF16>(grid()); }
TEST_P(AttentionOn, Fp64EqualsReference) { check_each<double>(grid()); }
TEST_P(AttentionOn, RowsReadInVectors) { check_each<BF16>(vector_rows()); }
TEST_P(AttentionOn, Fp32Variants) { check_each<float>(variants()); }
TEST_P(AttentionOn, Bf16Variants) { check_each<BF16>(variants()); }
TEST_P(AttentionOn, Fp64Variants) { check_each<double>(variants()); }
TEST_P(AttentionOn, Fp32Biases) { check_each<float>(biases()); }
TEST_P(AttentionOn, Bf16Biases) { check_each<BF16>(biases()); }
TEST_P(AttentionOn, Fp64Biases) { check_each<double>(biases()); }
TEST_P(AttentionOn, ValuesOfTheirOwnWidth) {
  check_each<BF16>(value_widths());
  check_each<float>(value_widths());
  check_each<double>(value_widths());
}
TEST_P(AttentionOn, OddHeadWidths) {
  check_each<BF16>(odd_widths());
  check_each<float>(odd_widths());
}
// Every backend gets them: a tile of queries of which the first one misses a block's last key, one whose second half
// alone does not see a block's keys, one whose first query alone sees a block's last key, a window whose last query
// is alone in its tile, and queries whose positions are behind the last key.
TEST_P(AttentionOn, MasksMayBeginAndEndInsideATile) {
  check_against_reference<BF16>({.T_q = 70, .T_kv = 132, .H = 2, .G = 1, .D = 16, .q_start = 62}, GetParam());
  check_against_reference<BF16>({.T_q = 200, .T_kv = 200, .H = 1, .G = 1, .D = 16, .chunk = 160}, GetParam());
  check_against_reference<BF16>({.T_q = 200, .T_kv = 200, .H = 1, .G = 1, .D = 16, .window = 66}, GetParam());
  check_against_reference<BF16>({.T_q = 65, .T_kv = 65, .H = 2, .G = 1, .D = 16, .window = 40}, GetParam());
  check_against_reference<BF16>({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 130, .kv_start = 40},
                                GetParam());
}
// As many queries as a block of threads adds at a time: each has its share of the sink's gradient.
TEST_P(AttentionOn, SinksGetTheirShareOfEachQuery) {
  check_against_reference<float>({.B = 8, .T_q = 32, .T_kv = 32, .H = 2, .G = 1, .D = 4, .sinks = true}, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Every, AttentionOn, ::testing::ValuesIn(test::backends_under_test()),
                         [](const auto& at) { return at.param.name; });

class Attention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::long_form() && !test::backends_under_test()[0].properties)
      GTEST_SKIP() << "the same bits are asked for it elsewhere";
  }
};

TEST_F(Attention, GradientsEqualFiniteDifferences) {
  const Case plain{.B = 1, .T_q = 67, .T_kv = 67, .H = 2, .G = 1, .D = 12};
  std::vector<Case> cases = {plain, plain, plain, plain, plain, plain, plain};
  cases[1].p = 0.25, cases[1].documents = true;
  cases[2].window = 9, cases[2].softcap = 1, cases[2].sinks = true;
  cases[3].alibi = true, cases[3].softcap = 3, cases[3].chunk = 20, cases[3].p = 0.25;
  cases[4].t5_buckets = 6, cases[4].softcap = 1, cases[4].p = 0.25;
  cases[5].causal = false, cases[5].documents = true, cases[5].t5_buckets = 6, cases[5].p = 0.25;
  cases[6].causal = false, cases[6].window = 20, cases[6].alibi = true, cases[6].sinks = true;
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    Call<double> run(c);
    run.forward();
    run.backward();
    const auto loss = [&] {
      run.forward();
      const std::vector<double> out = run.out_rows(run.out), weight = run.out_rows(run.dout);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weight[i];
      return sum;
    };
    std::vector<std::pair<double*, double>> elements;  // of q, k, v, sinks and biases, each with its gradient
    const int64_t used = (run.config.H + 2 * run.config.G) * run.config.D;
    for (int64_t i = 0; i < run.config.T_q * used; ++i) {
      const int64_t at = i / used * run.q_stride + i % used;
      elements.emplace_back(&run.qs[at], run.dqs[at]);
    }
    for (size_t h = 0; h < run.sinks.size(); ++h) elements.emplace_back(&run.sinks[h], run.dsinks[h]);
    for (int64_t i = 0; i < std::ssize(run.t5_bias); ++i) {
      if (i % run.t5_stride() < run.config.H) elements.emplace_back(&run.t5_bias[i], run.dt5_bias[i]);
    }
    const double step = 1e-6;
    for (int direction = 0; direction < 4; ++direction) {
      const auto sign = [&](size_t i) { return Philox::block(11, direction, i)[0] % 2 == 0 ? 1.0 : -1.0; };
      double expected = 0;
      for (size_t i = 0; i < elements.size(); ++i) expected += sign(i) * elements[i].second;
      const auto loss_at = [&](double distance) {
        std::vector<double> values;
        for (size_t i = 0; i < elements.size(); ++i) {
          values.push_back(*elements[i].first);
          *elements[i].first += sign(i) * distance;
        }
        const double result = loss();
        for (size_t i = 0; i < elements.size(); ++i) *elements[i].first = values[i];
        return result;
      };
      EXPECT_NEAR(expected, (loss_at(step) - loss_at(-step)) / (2 * step), 1e-6) << "direction " << direction;
    }
  }
}

/// Neighbours of a formula: what is not the contract's differs from it.
TEST_F(Attention, TellsNeighboursApart) {
  const Case c{.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8};
  const auto out = [&](const auto& change) {
    Case changed = c;
    change(changed);
    Call<double> run(changed);
    run.forward();
    return run.out_rows(run.out);
  };
  const auto plain = out([](Case&) {});
  // A window counts the query: of one token it sees itself alone, and its value is the result.
  Call<double> one({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .window = 1});
  one.forward();
  for (int64_t t = 0; t < 40; ++t) {
    for (int64_t x = 0; x < 16; ++x) {
      EXPECT_EQ(one.out[t * one.out_stride() + x], one.qs[t * one.q_stride + one.v_offset() + x % 8]);
    }
  }
  // A window as long as the sequence hides nothing, one token less hides the first key from the last query alone.
  EXPECT_EQ(out([](Case& v) { v.window = 40; }), plain);
  const auto shorter = out([](Case& v) { v.window = 39; });
  EXPECT_TRUE(std::equal(plain.begin(), plain.end() - 16, shorter.begin()));
  EXPECT_NE(shorter, plain);
  // A chunk is no window: its first query sees itself alone, and both agree in the first chunk.
  const auto chunk = out([](Case&v) { v.chunk = 10; }), window = out([](Case&v) { v.window = 10; });
  EXPECT_TRUE(std::equal(chunk.begin(), chunk.begin() + 160, window.begin()));
  EXPECT_NE(chunk, window);
  // A soft cap of c is no clipping: scores below c change too; a huge one changes nothing beyond rounding.
  const auto capped = out([](Case& v) { v.softcap = 1e6; });
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(capped[i], plain[i], 1e-9);
  // ALiBi is behind the cap: with scale 0 the cap has nothing to hold, the bias alone is left.
  const auto bias = out([](Case& v) { v.alibi = true, v.scale = 1e-300; });
  EXPECT_EQ(out([](Case& v) { v.alibi = true, v.scale = 1e-300, v.softcap = 0.01; }), bias);
  // A table of biases that falls by a slope times the distance is ALiBi, and it is behind the cap as well.
  for (const double softcap : {0.0, 0.5}) {
    Call<double> sloped({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .softcap = softcap, .alibi = true});
    Call<double> table({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .softcap = softcap, .t5_buckets = 40});
    table.qs = sloped.qs;
    table.t5_buckets.clear();
    for (int32_t n = 0; n < 40; ++n) {
      table.t5_buckets.push_back(n);
      for (int64_t h = 0; h < 2; ++h) table.t5_bias[n * table.t5_stride() + h] = -sloped.slopes[h] * n;
    }
    table.shape.scores.t5_buckets = test::view_of(table.t5_buckets);
    sloped.forward();
    table.forward();
    for (size_t i = 0; i < table.out.size(); ++i) EXPECT_NEAR(table.out[i], sloped.out[i], 1e-13);
  }
  // A sink takes of a row what a key without a value would: rows shrink by 1 / (1 + exp(sink - lse)).
  Call<double> sunk({.T_q = 40, .T_kv = 40, .H = 2, .G = 1, .D = 8, .sinks = true}), dry(c);
  dry.qs = sunk.qs;
  sunk.forward();
  dry.forward();
  for (int64_t n = 0; n < 40 * 16; ++n) {
    const int64_t t = n / 16, h = n % 16 / 8;
    const double factor = 1 / (1 + std::exp(sunk.sinks[h] - dry.lse[h * 40 + t]));
    EXPECT_NEAR(sunk.out[t * sunk.out_stride() + n % 16], factor * dry.out[t * dry.out_stride() + n % 16], 1e-12);
  }
}

TEST_F(Attention, NoQueryDependsOnLaterKeys) {
  const Case c{.B = 1, .T_q = 200, .T_kv = 200, .H = 2, .G = 1, .D = 16};
  Call<float> run(c);
  run.forward();
  const std::vector<double> before = run.out_rows(run.out);
  for (const int64_t t : {0, 63, 64, 130}) {
    Call<float> moved(c);
    for (int64_t n = t + 1; n < c.T_kv; ++n) {
      for (int64_t x = moved.k_offset(); x < moved.q_stride; ++x) moved.qs[n * moved.q_stride + x] *= -50;
    }
    moved.forward();
    const std::vector<double> after = moved.out_rows(moved.out);
    for (int64_t i = 0; i < (t + 1) * c.H * c.D; ++i) ASSERT_EQ(before[i], after[i]) << "changed from token " << t + 1;
    EXPECT_NE(before[(t + 1) * c.H * c.D], after[(t + 1) * c.H * c.D]);
  }
}

/// The first rows of a run as a call of their own.
TEST_F(Attention, CacheInChunksEqualsWhole) {
  const Case c{.B = 1, .T_q = 150, .T_kv = 150, .H = 4, .G = 2, .D = 16};
  Call<double> whole(c);
  whole.forward();
  const std::vector<double> want = whole.out_rows(whole.out);
  for (const int64_t chunk : {1, 7, 64, 100}) {
    test::DeviceVector<double> out(c.H * c.D * c.T_q), lse(c.H * c.T_q);
    for (int64_t t = 0; t < c.T_q; t += chunk) {
      const int64_t n = std::min(chunk, c.T_q - t);
      AttentionForward args = whole.forward_args();
      test::DeviceVector<double> chunk_lse(c.H * n);
      args.shape.T_q = n;
      args.shape.mask.q_start = t;
      args.shape.T_kv = t + n;
      args.q.data = whole.qs.data() + t * whole.q_stride;
      args.q.rows = n;
      args.k.rows = args.v.rows = t + n;
      args.out = {.data = out.data() + t * c.H * c.D,
                  .dtype = DType::kFloat64,
                  .rows = n,
                  .cols = c.H * c.D,
                  .stride = c.H * c.D};
      args.lse = {.data = chunk_lse.data(), .dtype = DType::kFloat64, .rows = 1, .cols = c.H * n, .stride = c.H * n};
      whole.forward(args);
      for (int64_t h = 0; h < c.H; ++h) {
        for (int64_t i = 0; i < n; ++i) lse[h * c.T_q + t + i] = chunk_lse[h * n + i];
      }
    }
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want[i], 1e-13);
    for (size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse[i], whole.lse[i], 1e-13);
  }
}

TEST_F(Attention, DocumentsEqualSeparateCalls) {
  const std::vector<int32_t> starts = {0, 1, 50, 64, 131, 180};  // a document of one token, one that ends at a block
  const Case c{.B = 1, .T_q = 180, .T_kv = 180, .H = 2, .G = 1, .D = 12};
  Call<double> packed(c);
  for (size_t n = 0; n + 1 < starts.size(); ++n)
    packed.docs.insert(packed.docs.end(), starts[n + 1] - starts[n], starts[n]);
  packed.shape.mask.doc_start = test::view_of(packed.docs);
  packed.forward();
  packed.backward();
  for (size_t n = 0; n + 1 < starts.size(); ++n) {
    const int64_t first = starts[n], length = starts[n + 1] - first;
    Call<double> alone({.B = 1, .T_q = length, .T_kv = length, .H = 2, .G = 1, .D = 12});
    std::copy_n(packed.qs.begin() + first * packed.q_stride, length * packed.q_stride, alone.qs.begin());
    std::copy_n(packed.dout.begin() + first * packed.out_stride(), length * packed.out_stride(), alone.dout.begin());
    alone.forward();
    alone.backward();
    for (int64_t i = 0; i < length * alone.out_stride(); ++i) {
      ASSERT_NEAR(packed.out[first * alone.out_stride() + i], alone.out[i], 1e-13);
    }
    for (int64_t i = 0; i < length * alone.q_stride; ++i) {
      ASSERT_NEAR(packed.dqs[first * alone.q_stride + i], alone.dqs[i], 1e-12);
    }
  }
}

template <typename S>
void check_accumulate(double unit) {
  Call<S> run({.B = 2, .T_q = 70, .T_kv = 90, .H = 4, .G = 2, .D = 20, .q_start = 20});
  run.forward();
  run.backward();
  Call<S> more({.B = 2, .T_q = 70, .T_kv = 90, .H = 4, .G = 2, .D = 20, .q_start = 20});
  more.forward();
  more.fill(more.dqs = {}, std::ssize(run.dqs));
  more.fill(more.dkvs = {}, std::ssize(run.dkvs));
  const auto before_q = more.q_rows(more.dqs), before_kv = more.k_rows(more.dkvs);
  more.backward(GradMode::kAccumulate);
  const auto compare = [&](const std::vector<double>& before, const std::vector<double>& added,
                           const std::vector<double>& sum) {
    for (size_t i = 0; i < sum.size(); ++i) {  // one rounding of the addend, one of the sum
      ASSERT_NEAR(sum[i], before[i] + added[i], 2 * unit * (std::abs(sum[i]) + std::abs(added[i])));
    }
  };
  compare(before_q, run.q_rows(run.dqs), more.q_rows(more.dqs));
  compare(before_kv, run.k_rows(run.dkvs), more.k_rows(more.dkvs));
}
TEST_F(Attention, AccumulateIsOverwritePlusAdd) {
  check_accumulate<float>(0x1p-24);
  check_accumulate<BF16>(0x1p-8);
  check_accumulate<double>(0x1p-53);
}

TEST_F(Attention, SkipWritesNothing) {
  Call<float> run({.B = 1, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  run.forward();
  run.backward(GradMode::kSkip);
  EXPECT_THAT(run.dqs, ::testing::Each(Call<float>::kUntouched));
}

TEST_P(AttentionOn, GradientsMayBeAbsent) {
  Call<float> run({.B = 1, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  run.under_test = GetParam();
  run.forward();
  run.backward();
  const auto all = run.dqs;
  for (const bool keep_dq : {true, false}) {
    std::fill(run.dqs.begin(), run.dqs.end(), Call<float>::kUntouched);
    AttentionBackward args = run.backward_args(GradMode::kOverwrite);
    if (keep_dq) {
      args.dk = args.dv = {};
    } else {
      args.dq = {};
    }
    run.backward(args);
    for (int64_t n = 0; n < 70; ++n) {
      for (int64_t x = 0; x < run.q_stride - 5; ++x) {
        const bool written = (x < run.k_offset()) == keep_dq;
        const int64_t at = n * run.q_stride + x;
        ASSERT_EQ(run.dqs[at], written ? all[at] : Call<float>::kUntouched);
      }
    }
  }
}

TEST_F(Attention, GivenDeltaIsUsed) {
  Call<double> run({.B = 2, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  run.forward();
  run.backward();
  test::DeviceVector<double> delta(run.lse.size()), gradients = run.dqs;
  const std::vector<double> out = run.out_rows(run.out), dout = run.out_rows(run.dout);
  for (int64_t n = 0; n < 2 * 70 * 2; ++n) {
    const int64_t b = n / 140, t = n / 2 % 70, h = n % 2;
    for (int64_t d = 0; d < 16; ++d) delta[(b * 2 + h) * 70 + t] += out[n * 16 + d] * dout[n * 16 + d];
  }
  AttentionBackward args = run.backward_args(GradMode::kOverwrite);
  args.delta = run.stat_view(delta);
  args.out = {};
  run.backward(args);
  for (size_t i = 0; i < gradients.size(); ++i) ASSERT_NEAR(run.dqs[i], gradients[i], 1e-13);
}

TEST_F(Attention, NonFiniteInputsStayVisible) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Call<float> run({.B = 1, .T_q = 100, .T_kv = 100, .H = 1, .G = 1, .D = 16});
    run.qs[70 * run.q_stride + run.k_offset() + 3] = bad;
    run.forward();
    for (int64_t t = 0; t < 70; ++t) ASSERT_TRUE(std::isfinite(run.out[t * run.out_stride()])) << t;
    int64_t shown = 0;
    for (int64_t t = 70; t < 100; ++t) shown += std::isfinite(run.out[t * run.out_stride()]) ? 0 : 1;
    // an infinite key is a score of either sign; minus infinity is a legitimate probability of zero
    EXPECT_GE(shown, std::isnan(bad) ? 30 : 1);
  }
}

TEST_F(Attention, UnsupportedSizesAreRefusedByName) {
  const test::BackendUnderTest under_test = test::backends_under_test().front();
  const std::unique_ptr<Backend> backend = under_test.make();
  const std::unique_ptr<Stream> stream = backend->make_stream();
  const auto message = [&](int64_t D, const auto& change) -> std::string {
    Call<float> run({.T_q = 4, .T_kv = 4, .D = D});
    std::string both;
    for (const bool forward : {true, false}) {
      AttentionForward f = run.forward_args();
      AttentionBackward b = run.backward_args(GradMode::kOverwrite);
      change(f.shape);
      change(b.shape);
      try {
        forward ? backend->attention_forward(f, *stream) : backend->attention_backward(b, *stream);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kInput);
        both = forward ? error.what() : both;
        continue;
      }
      return "accepted";
    }
    return both;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(513, [](AttentionShape&) {}), HasSubstr("head_dim to be from 1 to 512, got 513"));
}

}  // namespace
}  // namespace ashlar
