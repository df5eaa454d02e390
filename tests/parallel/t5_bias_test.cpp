// T5's relative bias in a decoder: which distances share a bucket, and what tells the model from its neighbours.
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/model/parameter_count.h"
#include "parallel/model/position_tables.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::PosType;
using testing::copy_weights;
using testing::TinyModel;

constexpr const char* kTable = "embed.t5_bias.weight";

std::vector<int64_t> buckets_of(int64_t buckets, int64_t max_distance) {
  ModelConfig c = testing::tiny_config();
  c.pos = {.type = PosType::kT5Bias, .t5_num_buckets = buckets, .t5_max_distance = max_distance};
  return model::t5_buckets(c);
}

/// The first distance of each bucket that has one.
std::vector<int64_t> starts_of(const std::vector<int64_t>& buckets) {
  std::vector<int64_t> starts;
  for (size_t n = 0; n < buckets.size(); ++n)
    if (n == 0 || buckets[n] != buckets[n - 1]) starts.push_back(static_cast<int64_t>(n));
  return starts;
}

// T5's own 32 buckets of 128, by hand: 16 * 8^(k/16), rounded up.
TEST(T5Buckets, OfTheModelAsPublished) {
  const std::vector<int64_t> starts = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                       16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  EXPECT_EQ(starts_of(buckets_of(32, 128)), starts);
  EXPECT_EQ(buckets_of(32, 128).size(), 114U) << "to the first distance of the last bucket";
}

// Bounds that are whole numbers: 16 * 2^(k/4) and 4 * 2^(k/2).
TEST(T5Buckets, WholeBoundsBeginTheirBucket) {
  const std::vector<int64_t> starts = starts_of(buckets_of(32, 256));
  EXPECT_EQ(starts[20], 32);
  EXPECT_EQ(starts[24], 64);
  EXPECT_EQ(starts[28], 128);
  EXPECT_EQ(starts_of(buckets_of(8, 16)), (std::vector<int64_t>{0, 1, 2, 3, 4, 6, 8, 12}));
}

// floor(ln(n/E) / ln(D/E) * (B - E)) >= k, without a logarithm: n^(B-E) E^k >= D^k E^(B-E), in integers.
TEST(T5Buckets, AreThoseOfTheFormulaInIntegers) {
  const auto power = [](int64_t base, int64_t exponent) {
    __extension__ unsigned __int128 product = 1;
    for (; exponent > 0; --exponent) product *= static_cast<uint64_t>(base);
    return product;
  };
  for (const int64_t B : {2, 3, 4, 5, 7, 8, 11, 12}) {
    const int64_t E = B / 2, rest = B - E;
    for (int64_t D = E + 1; D <= 60; ++D) {
      const std::vector<int64_t> got = buckets_of(B, D);
      for (int64_t n = 0; n < 2 * D; ++n) {
        int64_t expected = n;
        if (n >= E) {
          int64_t k = 0;
          while (k + 1 < rest && power(n, rest) * power(E, k + 1) >= power(D, k + 1) * power(E, rest)) ++k;
          expected = E + k;
        }
        ASSERT_EQ(got[std::min(n, std::ssize(got) - 1)], expected) << B << " buckets to " << D << ", distance " << n;
      }
    }
  }
}

ModelConfig config_with(int64_t buckets, int64_t max_distance, bool shared = true) {
  ModelConfig c = testing::tiny_config();
  c.pos = {.type = PosType::kT5Bias, .t5_num_buckets = buckets, .t5_max_distance = max_distance, .t5_shared = shared};
  c.rope.dims = 0;
  c.n_kv_heads = 2;
  return c;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
}

/// In one layer the first token that a bucket moves is the one its first distance reaches back from to token 0.
TEST(T5Bias, ABucketMovesTheTokensFromItsFirstDistanceOn) {
  constexpr int64_t T = 16;
  ModelConfig c = config_with(8, 16);
  c.n_layers = 1;
  TinyModel m(c, DType::kFloat64, 1, T);
  const std::vector<double> before = m.logits(), table = m.values(kTable);
  ASSERT_EQ(std::ssize(table), 8 * c.n_heads);
  const std::vector<int64_t> starts = {0, 1, 2, 3, 4, 6, 8, 12};
  for (int64_t bucket = 0; bucket < 8; ++bucket) {
    std::vector<double> changed = table;
    changed[bucket * c.n_heads + 1] += 1;  // of one head
    m.set(kTable, changed);
    const std::vector<double> after = m.logits();
    // A row's only key has probability one, whatever its score.
    const int64_t first = std::max<int64_t>(starts[bucket], 1);
    for (int64_t t = 0; t < T; ++t) {
      double moved = 0;
      for (int64_t v = 0; v < c.vocab_size; ++v)
        moved = std::max(moved, std::abs(after[t * c.vocab_padded() + v] - before[t * c.vocab_padded() + v]));
      if (t < first)
        EXPECT_EQ(moved, 0) << "bucket " << bucket << ", token " << t;
      else
        EXPECT_GT(moved, 1e-6) << "bucket " << bucket << ", token " << t;
    }
  }
}

/// Buckets of one distance each, falling by a slope of the head: ALiBi.
TEST(T5Bias, ASlopedTableIsAlibi) {
  constexpr int64_t T = 12;
  ModelConfig c = config_with(2 * T, 4 * T);
  c.attn.softcap = 0.7;
  TinyModel table(c, DType::kFloat64, 2, T);
  c.pos = {.type = PosType::kAlibi};
  TinyModel alibi(c, DType::kFloat64, 2, T);
  copy_weights(alibi, table);
  const std::vector<double> slopes = model::alibi_slopes(c);
  std::vector<double> values;
  for (int64_t n = 0; n < 2 * T; ++n)
    for (const double slope : slopes) values.push_back(-slope * static_cast<double>(n));
  table.set(kTable, values);
  expect_near(table.logits(), alibi.logits(), 1e-13);
}

/// One table a layer, all alike, is the shared one; its gradient is their sum.
TEST(T5Bias, ASharedTableIsOneALayerAllAlike) {
  TinyModel shared(config_with(5, 6), DType::kFloat64, 2, 9), own(config_with(5, 6, false), DType::kFloat64, 2, 9);
  copy_weights(shared, own);
  ASSERT_EQ(own.store().find(kTable), nullptr);
  for (const char* name : {"blocks.0.attn.t5_bias.weight", "blocks.1.attn.t5_bias.weight"})
    own.set(name, shared.values(kTable));
  EXPECT_NEAR(shared.loss_and_gradients(shared.ctx()), own.loss_and_gradients(own.ctx()), 1e-14);
  std::vector<double> sum = own.gradient("blocks.0.attn.t5_bias.weight");
  const std::vector<double> second = own.gradient("blocks.1.attn.t5_bias.weight");
  double largest = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += second[i];
    largest = std::max(largest, std::abs(sum[i]));
  }
  EXPECT_GT(largest, 1e-4);
  expect_near(shared.gradient(kTable), sum, 1e-14);
}

/// Distances, not positions: a document behind another one is as it is alone.
TEST(T5Bias, DependsOnDistancesAlone) {
  constexpr int64_t kSplit = 5, T = 14;
  TinyModel packed(config_with(6, 8), DType::kFloat64, 1, T);
  for (int64_t t = 0; t < T; ++t) packed.doc_start().push_back(t < kSplit ? 0 : kSplit);
  const std::vector<double> together = packed.logits();
  TinyModel alone(config_with(6, 8), DType::kFloat64, 1, T - kSplit);
  copy_weights(packed, alone);
  std::copy_n(packed.ids().begin() + kSplit, T - kSplit, alone.ids().begin());
  alone.sort();
  const int64_t V = packed.stage().config().vocab_padded();
  expect_near({together.begin() + kSplit * V, together.end()}, alone.logits(), 1e-13);
}

/// Behind a cache, whose tokens are further back than the call's own first key.
TEST(T5Bias, TokensOneAtATimeAreThoseOfAllAtOnce) {
  constexpr int64_t T = 14;
  for (const bool shared : {true, false}) {
    TinyModel m(config_with(6, 8, shared), DType::kFloat64, 1, T),
        one(config_with(6, 8, shared), DType::kFloat64, 1, 1);
    copy_weights(m, one);
    const std::vector<double> whole = m.logits();
    const int64_t V = m.stage().config().vocab_padded();
    model::KvCache cache = one.stage().make_cache(one.ctx(), 1, T);
    for (int64_t t = 0; t < T; ++t) {
      one.ids() = {m.ids()[t]};
      one.positions() = {static_cast<int32_t>(t)};
      one.sort();
      const Tensor rows = one.stage().decode(one.ctx(), Tensor(), one.batch(), cache);
      const auto row = whole.begin() + t * V;
      expect_near(one.host(one.stage().logits(one.ctx(), rows)), {row, row + V}, 1e-12);
    }
  }
}

TEST(T5Bias, TablesCountOnceOrOnceALayer) {
  EXPECT_EQ(model::count_parameters(config_with(5, 6)).positions, 5 * 4);
  EXPECT_EQ(model::count_parameters(config_with(5, 6, false)).positions, 2 * 5 * 4);
  for (const bool shared : {true, false}) {
    const TinyModel m(config_with(5, 6, shared), DType::kFloat32, 1, 4);
    int64_t elements = 0;
    for (const auto& ref : m.store().sharded_tensors()) elements += ref.tensor->size();
    EXPECT_EQ(elements, model::count_parameters(config_with(5, 6, shared)).total());
  }
}

/// LaMDA 137B (Thoppilan et al. 2022, arXiv:2201.08239, section 3) and the decoder stacks of T5 v1.1 XXL and T5 11B.
TEST(T5Bias, PublishedCounts) {
  ModelConfig c;
  c.pos.type = PosType::kT5Bias;
  c.d_model = 8192;
  c.n_layers = 64;
  c.n_heads = c.n_kv_heads = 128;
  c.head_dim = 128;
  c.d_ff = 65536;
  c.vocab_size = 32000;
  c.tied = true;
  EXPECT_EQ(model::count_parameters(c).total(), 137702158336);
  c.d_model = 4096;
  c.n_layers = 24;
  c.n_heads = c.n_kv_heads = 64;
  c.head_dim = 64;
  c.d_ff = 10240;
  c.vocab_size = 32128;
  c.tied = false;
  EXPECT_EQ(model::count_parameters(c).total(), 4893906944);
  c.d_model = 1024;
  c.n_heads = c.n_kv_heads = 128;
  c.head_dim = 128;
  c.d_ff = 65536;
  c.ffn.gated = false;
  c.tied = true;
  EXPECT_EQ(model::count_parameters(c).total(), 4864791552);
}

}  // namespace
}  // namespace ashlar
