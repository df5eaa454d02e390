// Latent attention and values of a width of their own: what tells them from their neighbours, decoding, documents,
// counts and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/model/flops.h"
#include "parallel/model/model_constraints.h"
#include "parallel/model/parameter_count.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::AttentionKind;
using model::ModelConfig;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kShortLength;
using testing::kSmallBatch;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

ModelConfig latent_config() {
  ModelConfig c = tiny_config();
  c.attn.kind = AttentionKind::kMla;
  c.attn.q_rank = 5;
  c.attn.kv_rank = 6;
  c.attn.v_head_dim = 3;
  c.head_dim = 7;
  c.rope.dims = 2;
  return c;
}

/// Rows [begin, begin + count) of a matrix.
std::vector<double> rows_of(const std::vector<double>& matrix, int64_t cols, int64_t begin, int64_t count) {
  return {matrix.begin() + begin * cols, matrix.begin() + (begin + count) * cols};
}

void append(std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); }

// Rows of length one (behind a norm without a gain) pass a latent of full rank made by the identity, and its norm,
// unchanged: what is left is attention whose keys begin with columns that all heads share.
TEST(LatentAttention, OfFullRankIsAttentionWithASharedRotatedKey) {
  for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
    ModelConfig c = latent_config();
    const int64_t C = c.d_model, R = 4, P = c.head_dim - R;
    c.rope.dims = R;
    c.rope.style = style;
    c.attn.q_rank = c.attn.kv_rank = C;
    c.attn.latent_eps = c.norm.variant.eps = 1e-30;
    ModelConfig standard = c;
    standard.attn.kind = AttentionKind::kStandard;
    TinyModel latent(c, DType::kFloat64, kSmallBatch, kShortLength),
        plain(standard, DType::kFloat64, kSmallBatch, kShortLength);
    std::vector<double> identity(static_cast<size_t>(C * C), 0.0);
    for (int64_t i = 0; i < C; ++i) identity[static_cast<size_t>(i * C + i)] = 1;
    for (const auto& ref : plain.store().sharded_tensors())
      if (latent.store().find(ref.tensor->name) != nullptr)
        plain.set(ref.tensor->name, latent.values(ref.tensor->name));
    for (int64_t i = 0; i < c.n_layers; ++i) {
      const std::string name = str_cat("blocks.", i, ".attn.");
      const std::vector<double> rotated = rows_of(latent.values(name + "kv_a.weight"), C, C, R);
      std::vector<double> kv_a = identity, keys;
      append(kv_a, rotated);
      latent.set(name + "q_a.weight", identity);
      latent.set(name + "kv_a.weight", kv_a);
      for (int64_t h = 0; h < c.n_heads; ++h) {
        append(keys, rotated);
        append(keys, rows_of(latent.values(name + "k_b.weight"), C, h * P, P));
      }
      plain.set(name + "q.weight", latent.values(name + "q_b.weight"));
      plain.set(name + "k.weight", keys);
      plain.set(name + "v.weight", latent.values(name + "v_b.weight"));
    }
    EXPECT_LT(worst_difference(latent.logits(), plain.logits()), 1e-12) << name_of(style);
    // The other columns of the keys do not rotate.
    ModelConfig all = standard;
    all.rope.dims = 6;
    TinyModel turned(all, DType::kFloat64, kSmallBatch, kShortLength);
    for (const auto& ref : plain.store().sharded_tensors())
      turned.set(ref.tensor->name, plain.values(ref.tensor->name));
    EXPECT_GT(worst_difference(latent.logits(), turned.logits()), 1e-4);
  }
}

// Queries by one matrix are those of a latent that the identity makes.
TEST(LatentAttention, WithoutALatentOfQueriesHasOneMatrix) {
  ModelConfig c = latent_config();
  c.attn.q_rank = 0;
  c.norm.variant.eps = c.attn.latent_eps = 1e-30;
  ModelConfig ranked = c;
  ranked.attn.q_rank = c.d_model;
  TinyModel one(c, DType::kFloat64, kSmallBatch, kShortLength), two(ranked, DType::kFloat64, kSmallBatch, kShortLength);
  std::vector<double> identity(static_cast<size_t>(c.d_model * c.d_model), 0.0);
  for (int64_t i = 0; i < c.d_model; ++i) identity[static_cast<size_t>(i * c.d_model + i)] = 1;
  for (const auto& ref : two.store().sharded_tensors())
    if (one.store().find(ref.tensor->name) != nullptr) one.set(ref.tensor->name, two.values(ref.tensor->name));
  for (int64_t i = 0; i < c.n_layers; ++i) {
    two.set(str_cat("blocks.", i, ".attn.q_a.weight"), identity);
    one.set(str_cat("blocks.", i, ".attn.q.weight"), two.values(str_cat("blocks.", i, ".attn.q_b.weight")));
  }
  EXPECT_LT(worst_difference(one.logits(), two.logits()), 1e-12);
}

// A norm takes the size of a latent away; the rotated key goes around it.
TEST(LatentAttention, NormsTheLatentsAndNotTheRotatedKey) {
  ModelConfig c = latent_config();
  c.attn.latent_eps = 1e-30;
  const auto logits = [&](const char* tensor, int64_t begin, int64_t rows, double factor) {
    TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    std::vector<double> w = m.values(tensor);
    for (int64_t i = begin * c.d_model; i < (begin + rows) * c.d_model; ++i) w[static_cast<size_t>(i)] *= factor;
    m.set(tensor, w);
    return m.logits();
  };
  const std::vector<double> plain = logits("blocks.0.attn.kv_a.weight", 0, 0, 1);
  EXPECT_LT(worst_difference(logits("blocks.0.attn.kv_a.weight", 0, c.attn.kv_rank, 3), plain), 1e-12);
  EXPECT_LT(worst_difference(logits("blocks.0.attn.q_a.weight", 0, c.attn.q_rank, 3), plain), 1e-12);
  EXPECT_GT(worst_difference(logits("blocks.0.attn.kv_a.weight", c.attn.kv_rank, c.rope.dims, 3), plain), 1e-5);
  // Its eps is its own: that of the other norms changes them alone, which a stream far from 0 does not feel.
  c.embed_scale = 1e4;
  c.attn.latent_eps = 10;
  const std::vector<double> own = logits("blocks.0.attn.kv_a.weight", 0, 0, 1);
  c.norm.variant.eps = 1e-12;
  EXPECT_LT(worst_difference(logits("blocks.0.attn.kv_a.weight", 0, 0, 1), own), 1e-5);
  c.attn.latent_eps = 1e-6;
  EXPECT_GT(worst_difference(logits("blocks.0.attn.kv_a.weight", 0, 0, 1), own), 1e-4);
}

/// Logits of the last token of each sample, from `first` tokens at once and then one by one.
std::vector<double> decoded(const TinyModel& m, const ModelConfig& c, int64_t first) {
  model::KvCache cache = m.stage().make_cache(m.ctx(), kSmallBatch, kShortLength);
  std::vector<double> logits;
  for (int64_t at = 0; at < kShortLength;) {
    const int64_t count = at == 0 ? first : 1;
    std::vector<int32_t> ids, positions;
    for (int64_t b = 0; b < kSmallBatch; ++b) {
      for (int64_t t = at; t < at + count; ++t) {
        ids.push_back(static_cast<int32_t>((b * kShortLength + t) * 5 % c.vocab_size));
        positions.push_back(static_cast<int32_t>(t));
      }
    }
    const Ctx ctx = m.ctx();
    const Tensor device_ids = ctx.empty(DType::kInt32, {kSmallBatch * count}),
                 device_positions = ctx.empty(DType::kInt32, {kSmallBatch * count});
    ctx.backend.write(ids.data(), device_ids.mut_view(), ctx.stream);
    ctx.backend.write(positions.data(), device_positions.mut_view(), ctx.stream);
    const model::BatchView batch{
        .B = kSmallBatch, .T = count, .ids = device_ids.view(), .positions = device_positions.view()};
    logits = m.host(m.stage().logits(ctx, m.stage().decode(ctx, Tensor(), batch, cache)));
    at += count;
  }
  return logits;
}

TEST(LatentAttention, DecodesWhatAWholeForwardSays) {
  ModelConfig narrow = tiny_config();
  narrow.attn.v_head_dim = 3;
  narrow.n_kv_heads = 2;
  ModelConfig one_matrix = latent_config();
  one_matrix.attn.q_rank = 0;
  for (const ModelConfig& c : {latent_config(), one_matrix, narrow}) {
    TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    for (int64_t n = 0; n < kSmallBatch * kShortLength; ++n)
      m.ids()[static_cast<size_t>(n)] = static_cast<int32_t>(n * 5 % c.vocab_size);
    const std::vector<double> whole = m.logits();
    const auto V = static_cast<size_t>(c.vocab_padded());
    for (const int64_t first : {int64_t{1}, int64_t{4}}) {
      const std::vector<double> last = decoded(m, c, first);
      ASSERT_EQ(last.size(), kSmallBatch * V);
      double worst = 0;
      for (size_t b = 0; b < static_cast<size_t>(kSmallBatch); ++b)
        for (size_t v = 0; v < V; ++v)
          worst = std::max(worst, std::abs(last[b * V + v] - whole[((b + 1) * kShortLength - 1) * V + v]));
      EXPECT_LT(worst, 1e-12);
    }
  }
}

// A document behind another one in a sample has the logits that it has alone.
TEST(LatentAttention, SeesNothingOfAnotherDocument) {
  const ModelConfig c = latent_config();
  constexpr int64_t kFirst = 3;
  TinyModel packed(c, DType::kFloat64, 1, kShortLength), alone(c, DType::kFloat64, 1, kShortLength - kFirst);
  for (int64_t t = kFirst; t < kShortLength; ++t) {
    alone.ids()[static_cast<size_t>(t - kFirst)] = packed.ids()[static_cast<size_t>(t)];
    packed.positions()[static_cast<size_t>(t)] = static_cast<int32_t>(t - kFirst);
  }
  packed.doc_start().assign(static_cast<size_t>(kShortLength), 0);
  const std::vector<double> seen = packed.logits();
  for (int64_t t = kFirst; t < kShortLength; ++t) packed.doc_start()[static_cast<size_t>(t)] = kFirst;
  const std::vector<double> hidden = packed.logits(), wanted = alone.logits();
  const std::vector<double> behind(hidden.begin() + kFirst * c.vocab_padded(), hidden.end());
  EXPECT_LT(worst_difference(behind, wanted), 1e-12);
  EXPECT_GT(worst_difference(hidden, seen), 1e-4);
}

// Values that are narrower are wider ones whose last columns are zero.
TEST(ValueWidth, IsThatOfTheValuesAndTheOutputAlone) {
  ModelConfig c = tiny_config();
  c.n_kv_heads = 2;
  const int64_t D = c.head_dim, V = 3;
  TinyModel wide(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.attn.v_head_dim = V;
  TinyModel narrow(c, DType::kFloat64, kSmallBatch, kShortLength);
  for (const auto& ref : narrow.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    if (name.find("attn.v.") == std::string::npos && name.find("attn.out.") == std::string::npos)
      wide.set(name, narrow.values(name));
  }
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string name = str_cat("blocks.", i, ".attn.");
    const std::vector<double> v = narrow.values(name + "v.weight"), out = narrow.values(name + "out.weight");
    std::vector<double> wide_v, wide_out;
    for (int64_t g = 0; g < c.n_kv_heads; ++g) {
      append(wide_v, rows_of(v, c.d_model, g * V, V));
      wide_v.resize(wide_v.size() + static_cast<size_t>((D - V) * c.d_model), 0.0);
    }
    for (int64_t at = 0; at < c.d_model * c.n_heads; ++at) {
      append(wide_out, rows_of(out, V, at, 1));
      wide_out.resize(wide_out.size() + static_cast<size_t>(D - V), 7.0);
    }
    wide.set(name + "v.weight", wide_v);
    wide.set(name + "out.weight", wide_out);
  }
  EXPECT_LT(worst_difference(narrow.logits(), wide.logits()), 1e-12);
}

TEST(LatentAttention, CountsWhatItHas) {
  ModelConfig plain = tiny_config();
  plain.attn.v_head_dim = 3;
  plain.n_kv_heads = 2;
  plain.bias = {true, true, true, true};
  ModelConfig one_matrix = latent_config();
  one_matrix.attn.q_rank = 0;
  one_matrix.bias = {true, true, true, true};
  ModelConfig xielu = latent_config();
  xielu.ffn = {Activation::kXielu, false};
  xielu.block = {model::Topology::kParallel, 1};
  for (const ModelConfig& c : {plain, latent_config(), one_matrix, xielu}) {
    EXPECT_THAT(model::constraint_errors(c), IsEmpty());
    const TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    int64_t elements = 0;
    for (const auto& ref : m.store().sharded_tensors()) elements += ref.tensor->size();
    EXPECT_EQ(elements, model::count_parameters(c).total());
  }
  // 4 heads of 7 and values of 3: a query, a score's key and a value, forward and backward.
  const model::FlopsPerToken flops = model::flops_per_token(latent_config(), 10);
  EXPECT_DOUBLE_EQ(flops.attention_full, 6.0 * 2 * 4 * (7 + 3) * 10);
  // Wqa, Wqb, Wkva, Wkb and Wvb, the output: nothing else of attention multiplies.
  EXPECT_EQ(model::count_parameters(latent_config()).attention,
            2 * (12 * 5 + 5 * 28 + 12 * (6 + 2) + 6 * 4 * (5 + 3) + 12 * 12));
}

TEST(LatentAttention, WhatItDoesNotGoWithIsRefusedByName) {
  const auto errors = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig c = latent_config();
    change(c);
    return model::constraint_errors(c);
  };
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.kv_rank = 0; }), Contains(HasSubstr("attn.kv_rank = 0")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.rope.dims = 6, c.head_dim = 6; }),
              Contains(AllOf(HasSubstr("rope.dims = 6"), HasSubstr("attn.kind = \"mla\""))));
  EXPECT_THAT(errors([](ModelConfig& c) { c.pos.type = model::PosType::kAlibi; }), Contains(HasSubstr("pos.type")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.n_kv_heads = 2; }), Contains(HasSubstr("model.n_kv_heads = 2")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.qk_norm.kind = model::QkNorm::kHead; }),
              Contains(HasSubstr("attn.qk_norm = \"head\"")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.clip_qkv = 8; }), Contains(HasSubstr("attn.clip_qkv = 8")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.sinks = true; }), Contains(HasSubstr("attn.sinks = true")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.k_eq_v = true; }), Contains(HasSubstr("attn.k_eq_v = true")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.v_norm = true; }), Contains(HasSubstr("attn.v_norm = true")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.global_head_dim = 8; }),
              Contains(HasSubstr("attn.global_head_dim = 8")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.temperature_positions = 2; }),
              Contains(HasSubstr("attn.temperature_positions = 2")));
  EXPECT_THAT(errors([](ModelConfig& c) { c.rope.scaling = model::RopeScaling::kProportional; }),
              Contains(HasSubstr("rope.scaling = \"proportional\"")));
  EXPECT_THAT(errors([](ModelConfig& c) {
                c.ffn = {Activation::kXielu, true};
              }),
              Contains(AllOf(HasSubstr("ffn.gated = true"), HasSubstr("xielu"))));
  EXPECT_THAT(errors([](ModelConfig& c) { c.attn.v_head_dim = 513; }), Contains(HasSubstr("attn.v_head_dim = 513")));
}

}  // namespace
}  // namespace ashlar
