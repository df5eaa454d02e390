#include "data/read/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::data {
namespace {

TEST(KeyedPermutation, IsABijectionAtManySizes) {
  std::vector<int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const int64_t n : {1023, 1024, 1025, 4095, 4097, 65537, testing::long_form() ? 5'000'000 : 100'003})
    sizes.push_back(n);
  for (const int64_t n : sizes) {
    const KeyedPermutation permutation(n, 7, static_cast<uint64_t>(n));
    std::vector<uint8_t> hit(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t p = permutation(i);
      ASSERT_TRUE(p >= 0 && p < n) << n;
      ASSERT_EQ(hit[p]++, 0) << "n = " << n << ", image " << p << " twice";
    }
  }
}

TEST(KeyedPermutation, DependsOnSeedAndSite) {
  const auto image = [](uint64_t seed, uint64_t rng_stream) {
    const KeyedPermutation p(1000, seed, rng_stream);
    std::vector<int64_t> v(1000);
    for (int64_t i = 0; i < 1000; ++i) v[i] = p(i);
    return v;
  };
  const auto equal_places = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    int64_t n = 0;
    for (size_t i = 0; i < a.size(); ++i) n += a[i] == b[i] ? 1 : 0;
    return n;
  };
  EXPECT_EQ(image(1, 2), image(1, 2));
  // Two random permutations agree in one place on average (Poisson): ten is beyond 1e-7.
  EXPECT_LT(equal_places(image(1, 2), image(2, 2)), 10);
  EXPECT_LT(equal_places(image(1, 2), image(1, 3)), 10);
}

/// A random permutation has no memory: the correlation of i and p(i) over n points is 0 +- 1/sqrt(n).
TEST(KeyedPermutation, LooksRandom) {
  constexpr int64_t kSize = 100'000;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const KeyedPermutation p(kSize, seed, 1);
    double same = 0, next = 0;
    for (int64_t i = 0; i + 1 < kSize; ++i) {
      const double a = static_cast<double>(p(i)) / kSize - 0.5;
      same += a * (static_cast<double>(i) / kSize - 0.5) * 12 / kSize;
      next += a * (static_cast<double>(p(i + 1)) / kSize - 0.5) * 12 / kSize;
    }
    EXPECT_LT(std::abs(same), 5 / std::sqrt(kSize));
    EXPECT_LT(std::abs(next), 5 / std::sqrt(kSize));
  }
}

struct Shape {
  int64_t tokens, T, S;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.tokens << " tokens, T " << s.T << ", S " << s.S;
}

class WindowOrderShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(WindowOrderShapes, EveryWindowOnceAnEpochInItsChunkAndGroup) {
  const auto [tokens, T, S] = GetParam();
  const WindowOrder order("d", tokens, T, S, 42);
  const int64_t W = (tokens - 1) / T;
  ASSERT_EQ(order.windows(), W);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> seen(static_cast<size_t>(W), 0);
    std::vector<std::set<int64_t>> chunks_of_group;
    int64_t last_group = 0;
    for (int64_t i = 0; i < W; ++i) {
      const WindowAddress a = order.at(epoch * W + i);
      ASSERT_EQ(a.epoch, epoch);
      ASSERT_TRUE(a.window >= 0 && a.window < W);
      ASSERT_EQ(a.chunk, a.window * T / S) << "a window belongs to the chunk of its first token";
      ASSERT_EQ(seen[a.window]++, 0) << "window " << a.window << " twice";
      ASSERT_GE(a.group, last_group) << "groups come one after the other";
      last_group = a.group;
      chunks_of_group.resize(std::max<size_t>(chunks_of_group.size(), a.group + 1));
      chunks_of_group[a.group].insert(a.chunk);
    }
    std::set<int64_t> all;
    size_t total = 0;
    for (const auto& chunks : chunks_of_group) {
      EXPECT_LE(chunks.size(), 64U);
      all.insert(chunks.begin(), chunks.end());
      total += chunks.size();
    }
    EXPECT_EQ(all.size(), total) << "a chunk lies in one group only";
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, WindowOrderShapes,
                         ::testing::Values(Shape{2, 1, 16}, Shape{17, 16, 16}, Shape{18, 16, 16}, Shape{1000, 7, 16},
                                           Shape{5000, 16, 16}, Shape{50'000, 8, 32}, Shape{50'001, 10, 32},
                                           Shape{50'017, 33, 32}, Shape{50'017, 31, 32}, Shape{70'000, 100, 32},
                                           Shape{70'000, 5000, 32}, Shape{99'999, 3, 64}, Shape{4099, 64, 64},
                                           Shape{64 * 64 + 2, 1, 64}, Shape{1'500'000, 64, 65536},
                                           Shape{1'500'000, 1000, 65536}, Shape{40'000'000, 1024, 65536},
                                           Shape{40'000'001, 1023, 65536}));

TEST(WindowOrder, EpochsAndSeedsDiffer) {
  const WindowOrder a("d", 100'000, 10, 1000, 1), b("d", 100'000, 10, 1000, 2);
  int64_t same_epoch = 0, same_seed = 0;
  for (int64_t i = 0; i < a.windows(); ++i) {
    same_epoch += a.at(i).window == a.at(a.windows() + i).window ? 1 : 0;
    same_seed += a.at(i).window == b.at(i).window ? 1 : 0;
  }
  EXPECT_LT(same_epoch, 15);
  EXPECT_LT(same_seed, 15);
}

/// Level one: chunks in the first group are spread over the whole stream, not its first 64.
TEST(WindowOrder, FirstGroupIsSpreadOverTheStream) {
  for (const int64_t T : {64, 100}) {
    const WindowOrder order("d", 6400 * 1000 + 1, T, 1000, 3);
    std::set<int64_t> chunks;
    for (int64_t i = 0; order.at(i).group == 0; ++i) chunks.insert(order.at(i).chunk);
    ASSERT_GE(chunks.size(), 60U);
    const double mean = std::accumulate(chunks.begin(), chunks.end(), 0.0) / static_cast<double>(chunks.size());
    // 64 uniform draws from [0, 6400): mean 3200, standard deviation 6400/sqrt(12*64) = 231.
    EXPECT_NEAR(mean, 3200, 5 * 231);
  }
}

/// Level one: which chunks come first is drawn anew in every epoch and for every seed, among the chunks with a window
/// more and among the others alike.
TEST(WindowOrder, ChunksOfTheFirstGroupAreDrawnAnewEachEpoch) {
  for (const int64_t T : {100, 64}) {  // 64 does not divide 1000: chunks of 15 and of 16 windows
    const WindowOrder order("d", 6400 * 1000 + 1, T, 1000, 3), other("d", 6400 * 1000 + 1, T, 1000, 4);
    const auto first_group = [](const WindowOrder& o, int64_t epoch) {
      std::map<int64_t, std::set<int64_t>> by_windows;
      for (int64_t i = epoch * o.windows(); o.at(i).group == 0; ++i) {
        const int64_t chunk = o.at(i).chunk;
        by_windows[o.first_window(chunk + 1) - o.first_window(chunk)].insert(chunk);
      }
      return by_windows;
    };
    auto first = first_group(order, 0);
    EXPECT_EQ(first.size(), 1000 % T == 0 ? 1U : 2U);
    for (auto& drawn : {first_group(order, 1), first_group(order, 7), first_group(other, 0)}) {
      for (const auto& [windows, chunks] : drawn) {
        std::vector<int64_t> both;
        std::set_intersection(chunks.begin(), chunks.end(), first[windows].begin(), first[windows].end(),
                              std::back_inserter(both));
        ASSERT_GT(chunks.size(), 20U);
        // One in a hundred of all chunks, at most 64: 0.64 in common on average, nine with probability below 1e-7.
        EXPECT_LE(both.size(), 8U) << "T " << T << ", chunks of " << windows << " windows";
      }
    }
  }
}

/// Level two: the windows of a group are drawn anew in every epoch, for every group and seed, also where there is only
/// one chunk to choose from.
TEST(WindowOrder, WindowsOfAGroupAreDrawnAnewEachEpochAndGroup) {
  const WindowOrder one("d", 60'000, 64, 65536, 3), other("d", 60'000, 64, 65536, 4);
  int64_t same_epoch = 0, same_seed = 0;
  for (int64_t i = 0; i < one.windows(); ++i) {
    same_epoch += one.at(i).window == one.at(one.windows() + i).window ? 1 : 0;
    same_seed += one.at(i).window == other.at(i).window ? 1 : 0;
  }
  EXPECT_LE(same_epoch, 7);  // one expected of any two permutations; eight with probability 1e-5
  EXPECT_LE(same_seed, 7);

  // Groups of 640 windows in chunks of ten: where in its chunk each stands tells whether two groups have one order.
  const WindowOrder groups("d", 3 * 6400 + 1, 10, 100, 3);
  int64_t same_place = 0;
  for (int64_t i = 0; i < 640; ++i) same_place += groups.at(i).window % 10 == groups.at(640 + i).window % 10 ? 1 : 0;
  EXPECT_LT(same_place, 110);  // 64 expected, deviation 7.6
}

TEST(WindowOrder, TooFewTokensIsNamed) {
  try {
    WindowOrder("some/dataset", 128, 128, 65536, 1);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_THAT(e.what(), ::testing::AllOf(::testing::HasSubstr("some/dataset"), ::testing::HasSubstr("128"),
                                           ::testing::HasSubstr("129")));
  }
  EXPECT_EQ(WindowOrder("d", 129, 128, 65536, 1).windows(), 1);
}

/// Positions far out cost no more than the first: a trillion tokens, thousands of epochs.
TEST(WindowOrder, IsFastAtAnyPosition) {
  const WindowOrder order("d", int64_t{1} << 40, 4096, 65536, 9);
  const int64_t W = order.windows();
  for (const int64_t i : {int64_t{0}, W - 1, W, 1000 * W + 12345}) {
    const WindowAddress a = order.at(i);
    EXPECT_EQ(a.epoch, i / W);
    EXPECT_TRUE(a.window >= 0 && a.window < W);
  }
}

struct Weights {
  std::vector<double> weights;
  int64_t period;  ///< samples after which every share is a whole number
  std::vector<int64_t> counts;
};

TEST(Mixture, ExactToTheSample) {
  const Weights cases[] = {{{1}, 1, {1}},
                           {{0.7, 0.3}, 10, {7, 3}},
                           {{3, 1}, 4, {3, 1}},
                           {{1, 1, 1}, 3, {1, 1, 1}},
                           {{0.5, 0.25, 0.125, 0.125}, 8, {4, 2, 1, 1}},
                           {{1, 2, 3, 4, 5, 6, 7}, 28, {1, 2, 3, 4, 5, 6, 7}},
                           {{0.001, 0.999}, 1000, {1, 999}},
                           {{1, 1e-3}, 1001, {1000, 1}},
                           {{2e300, 1e300}, 3, {2, 1}},
                           {{3e-300, 1e-300}, 4, {3, 1}},
                           {{0.1, 0.2}, 3, {1, 2}},
                           {{1e-7, 3e-7, 4e-7}, 8, {1, 3, 4}}};
  for (const Weights& c : cases) {
    const auto n = static_cast<int64_t>(c.weights.size());
    const Mixture mixture(std::vector<std::string>(c.weights.size(), "d"), c.weights);
    const double sum = std::accumulate(c.weights.begin(), c.weights.end(), 0.0);
    std::vector<int64_t> counts(c.weights.size(), 0);
    for (int64_t s = 0; s < 5 * c.period; ++s) {
      const MixtureAddress a = mixture.at(s);
      ASSERT_EQ(a.sample, counts[a.dataset]) << "samples of a dataset come in order, none left out";
      ++counts[a.dataset];
      for (int64_t d = 0; d < n; ++d) {
        ASSERT_EQ(mixture.count(s + 1, d), counts[d]);
        ASSERT_LE(std::abs(static_cast<double>(counts[d]) - static_cast<double>(s + 1) * c.weights[d] / sum),
                  0.5 * std::ceil(std::log2(n + 0.1)) + 1e-9);
      }
      if ((s + 1) % c.period == 0) {
        for (int64_t d = 0; d < n; ++d) ASSERT_EQ(counts[d], c.counts[d] * (s + 1) / c.period);
      }
    }
  }
}

/// Small weights next to large ones: each share is exact wherever it can be, at any position.
TEST(Mixture, SmallSharesAreExact) {
  for (const double small : {1e-6, 1e-7, 3e-9, 1e-15, 2.5e-17}) {
    const Mixture mixture({"large", "small"}, {1, small});
    // Of s samples s / period, rounded, are the small one's.
    const double period = (1 + small) / small;
    EXPECT_EQ(mixture.at(0).dataset, 0) << small;
    EXPECT_EQ(mixture.count(1000, 1), 0) << small;
    for (const double k : {1.0, 2.0, 7.0}) {
      const double at = k * period;
      if (at > 0x1p58) continue;
      for (const double around : {0.8, 1.3})
        EXPECT_EQ(mixture.count(static_cast<int64_t>(at * around), 1), std::llround(k * around)) << small;
    }
  }
  const int64_t period = 1'000'001;
  const Mixture million({"large", "small"}, {1, 1e-6});
  EXPECT_EQ(million.count(period, 1), 1);
  EXPECT_EQ(million.count(1000 * period, 1), 1000);
  EXPECT_EQ(million.count(1000 * period, 0), 1'000'000'000);
  // The very position where the count changes, and both sides of it.
  const int64_t far = int64_t{1} << 55;
  const int64_t before = million.count(far, 1);
  EXPECT_EQ(before, far / period + (far % period > period / 2 ? 1 : 0));
}

TEST(Mixture, ManySources) {
  constexpr int64_t kSources = 10'000;
  std::vector<double> weights;
  for (int64_t d = 0; d < kSources; ++d) weights.push_back(static_cast<double>(1 + d % 10) / 10);
  const Mixture mixture(std::vector<std::string>(kSources, "d"), weights);
  const int64_t period = kSources / 10 * 55;
  for (int64_t d = 0; d < kSources; ++d) ASSERT_EQ(mixture.count(7 * period, d), 7 * (1 + d % 10));
}

/// How the weights are written does not matter, and ratios of whole numbers have the order they always had.
TEST(Mixture, OrderIsThatOfTheRatio) {
  const std::vector<std::string> names = {"a", "b", "c"};
  const Mixture plain(names, {7, 2, 1}), tenths(names, {0.7, 0.2, 0.1}), large(names, {70e9, 20e9, 10e9});
  std::string order;
  for (int64_t s = 0; s < 1000; ++s) {
    const MixtureAddress a = plain.at(s);
    if (s < 20) order += names[static_cast<size_t>(a.dataset)];
    for (const Mixture* m : {&tenths, &large}) {
      ASSERT_EQ(m->at(s).dataset, a.dataset);
      ASSERT_EQ(m->at(s).sample, a.sample);
    }
  }
  EXPECT_EQ(order, "abaaacaabaabaaacaaba") << "what runs before this version saw";
}

TEST(Mixture, FarPositionsAndOddWeights) {
  const Mixture mixture({"a", "b"}, {std::sqrt(2.0), std::acos(-1.0)});
  const int64_t far = int64_t{1} << 50;
  const double share = std::sqrt(2.0) / (std::sqrt(2.0) + std::acos(-1.0));
  EXPECT_NEAR(static_cast<double>(mixture.count(far, 0)) / static_cast<double>(far), share, 0x1p-52);
  EXPECT_EQ(mixture.count(far, 0) + mixture.count(far, 1), far);
}

TEST(Mixture, WeightsBeyondAnyExactShareAreRefused) {
  for (const auto& [large, small] : {std::pair(1e300, 1e-300), {1.0, 1e-19}, {1e9, 1.0000000001e-10}, {1e25, 1.0}}) {
    try {
      Mixture({"the/large", "the/small"}, {large, small});
      FAIL() << large << ", " << small;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
      EXPECT_THAT(e.what(), ::testing::AllOf(::testing::HasSubstr("the/large"), ::testing::HasSubstr("the/small"),
                                             ::testing::HasSubstr("2^62")));
    }
  }
}

TEST(Mixture, BadWeightsAreNamed) {
  for (const double w : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    try {
      Mixture({"good", "the/bad/one"}, {1, w});
      FAIL() << w;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
      EXPECT_THAT(e.what(), ::testing::HasSubstr("the/bad/one"));
    }
  }
  EXPECT_THROW(Mixture({}, {}), Error);
}

}  // namespace
}  // namespace ashlar::data
