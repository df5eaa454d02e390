// Where norms stand and what they span: properties that hold for one form and not for its neighbours.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::NormPlacement;
using model::QkNorm;
using model::QkNormOrder;
using testing::copy_weights;
using testing::kShortLength;
using testing::kSmallBatch;
using testing::scale;
using testing::streams;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

double worst_mean_square_from_one(const std::vector<double>& rows, int64_t cols) {
  double worst = 0;
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(cols)) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += rows[at + c] * rows[at + c] / static_cast<double>(cols);
    worst = std::max(worst, std::abs(sum - 1));
  }
  return worst;
}

ModelConfig config_of(NormPlacement placement) {
  ModelConfig c = tiny_config();
  c.norm.placement = placement;
  c.norm.variant.eps = 1e-30;
  return c;
}

TEST(NormProperty, PostNormsTheStreamItselfAndTheEmbeddingsNormItsRows) {
  ModelConfig c = config_of(NormPlacement::kPost);
  c.norm.embed = true;
  const TinyModel post(c, DType::kFloat64, kSmallBatch, kShortLength);
  for (const std::vector<double>& stream : streams(post))
    EXPECT_LT(worst_mean_square_from_one(stream, c.d_model), 1e-12);
  for (const NormPlacement other : {NormPlacement::kPre, NormPlacement::kSandwich, NormPlacement::kOutput}) {
    c = config_of(other);
    const TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    for (const std::vector<double>& stream : streams(m))
      EXPECT_GT(worst_mean_square_from_one(stream, c.d_model), 1e-2) << name_of(other);
  }
}

TEST(NormProperty, ABranchWhoseOutputNormHasNoGainAddsNothing) {
  for (const NormPlacement placement : {NormPlacement::kSandwich, NormPlacement::kOutput}) {
    TinyModel m(config_of(placement), DType::kFloat64, kSmallBatch, kShortLength);
    for (const char* norm : {"blocks.0.norm1_out.weight", "blocks.0.norm2_out.weight"}) scale(m, norm, 0);
    const auto stream = streams(m);
    EXPECT_EQ(stream[0], stream[1]) << name_of(placement);
    EXPECT_NE(stream[1], stream[2]) << name_of(placement);
    EXPECT_EQ(m.store().find("blocks.0.norm1.weight") != nullptr, placement == NormPlacement::kSandwich);
  }
}

// Of a larger stream the norm before the attention takes the size away; without it the scores grow.
TEST(NormProperty, OnlyANormBeforeTheBranchHidesTheSizeOfTheStream) {
  for (const NormPlacement placement : {NormPlacement::kSandwich, NormPlacement::kOutput}) {
    const auto added = [&](double size) {
      ModelConfig c = config_of(placement);
      c.embed_scale = size;
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      scale(m, "blocks.0.norm2_out.weight", 0);
      const auto stream = streams(m);
      std::vector<double> difference = stream[1];
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= stream[0][i];
      return difference;
    };
    const double change = worst_difference(added(1), added(3));
    if (placement == NormPlacement::kSandwich) {
      EXPECT_LT(change, 1e-12);
    } else {
      EXPECT_GT(change, 1e-3);
    }
  }
}

TEST(NormProperty, TheResidualMultiplierIsThatOfTheLastWeightsOfEachBranch) {
  constexpr double kFactor = 0.22;
  for (const NormPlacement placement : {NormPlacement::kPre, NormPlacement::kSandwich}) {
    for (const model::Topology topology : {model::Topology::kSerial, model::Topology::kParallel}) {
      if (topology == model::Topology::kParallel && placement != NormPlacement::kPre) continue;
      ModelConfig c = config_of(placement);
      c.bias.attn_out = c.bias.ffn = true;
      c.block.topology = topology;
      TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
      c.block.residual_multiplier = kFactor;
      TinyModel with(c, DType::kFloat64, kSmallBatch, kShortLength);
      for (const char* bias : {"attn.out.bias", "ffn.down.bias"}) {
        const std::string name = str_cat("blocks.1.", bias);
        for (TinyModel* m : {&plain, &with}) m->set(name, std::vector<double>(c.d_model, 0.5));
      }
      EXPECT_GT(worst_difference(plain.logits(), with.logits()), 1e-3);
      for (const auto& ref : plain.store().sharded_tensors()) {
        const std::string& name = ref.tensor->name;
        const bool output = name.find("attn.out.") != std::string::npos || name.find("ffn.down.") != std::string::npos;
        const bool norm = name.find("_out.weight") != std::string::npos;
        if (placement == NormPlacement::kSandwich ? norm : output) scale(plain, name, kFactor);
      }
      EXPECT_LT(worst_difference(plain.logits(), with.logits()), 1e-12);
    }
  }
}

ModelConfig config_of(QkNorm kind) {
  ModelConfig c = tiny_config();
  c.n_kv_heads = 2;
  c.qk_norm.kind = kind;
  c.qk_norm.eps = 1e-30;
  return c;
}

/// How far the logits move when some rows of the query matrix are multiplied by 3.
double change_with_queries(QkNorm kind, bool one_head) {
  const ModelConfig c = config_of(kind);
  TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
  const std::vector<double> before = m.logits();
  scale(m, "blocks.0.attn.q.weight", 3, 0, one_head ? static_cast<size_t>(c.head_dim * c.d_model) : SIZE_MAX);
  return worst_difference(m.logits(), before);
}

TEST(QkNormProperty, TheSizeOfAHeadIsLostByItsOwnNormAndThatOfAllByTheFullOne) {
  for (const QkNorm kind : {QkNorm::kHead, QkNorm::kHeadPer, QkNorm::kL2}) {
    EXPECT_LT(change_with_queries(kind, true), 1e-12) << name_of(kind);
  }
  EXPECT_GT(change_with_queries(QkNorm::kFull, true), 1e-4);
  EXPECT_LT(change_with_queries(QkNorm::kFull, false), 1e-12);
  EXPECT_GT(change_with_queries(QkNorm::kNone, false), 1e-4);
}

TEST(QkNormProperty, GainsAreSharedByHeadsOrTheirOwn) {
  const ModelConfig c = config_of(QkNorm::kHead);
  TinyModel shared(c, DType::kFloat64, kSmallBatch, kShortLength),
      own(config_of(QkNorm::kHeadPer), DType::kFloat64, kSmallBatch, kShortLength),
      none(config_of(QkNorm::kL2), DType::kFloat64, kSmallBatch, kShortLength);
  copy_weights(shared, none);
  EXPECT_EQ(none.store().find("blocks.0.attn.q_norm.weight"), nullptr);
  EXPECT_LT(worst_difference(shared.logits(), none.logits()), 1e-15) << "gains begin at 1";
  const std::vector<double> gain = {0.5, 1.5, -1, 2};
  std::vector<double> repeated;
  for (int64_t h = 0; h < c.n_heads; ++h) repeated.insert(repeated.end(), gain.begin(), gain.end());
  for (const auto& ref : shared.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    if (!name.ends_with("_norm.weight")) {
      own.set(name, shared.values(name));
      continue;
    }
    const int64_t heads = name.find("q_norm") != std::string::npos ? c.n_heads : c.n_kv_heads;
    shared.set(name, gain);
    own.set(name, {repeated.begin(), repeated.begin() + heads * c.head_dim});
  }
  EXPECT_LT(worst_difference(shared.logits(), own.logits()), 1e-12);
  EXPECT_GT(worst_difference(shared.logits(), none.logits()), 1e-3);
  scale(own, "blocks.0.attn.k_norm.weight", 2, 0, 1);  // of the first head alone
  EXPECT_GT(worst_difference(shared.logits(), own.logits()), 1e-4);
}

// A rotation keeps the size of a head: only gains that differ within a pair tell the order.
TEST(QkNormProperty, TheOrderIsSeenThroughUnequalGains) {
  ModelConfig c = config_of(QkNorm::kHead);
  TinyModel before(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.qk_norm.order = QkNormOrder::kAfterRope;
  TinyModel after(c, DType::kFloat64, kSmallBatch, kShortLength);
  EXPECT_LT(worst_difference(before.logits(), after.logits()), 1e-12);
  for (TinyModel* m : {&before, &after}) m->set("blocks.0.attn.q_norm.weight", {0.5, 1.5, -1, 2});
  EXPECT_GT(worst_difference(before.logits(), after.logits()), 1e-3);
}

TEST(QkNormProperty, OnlyALayerNormForgetsTheMean) {
  for (const NormType type : {NormType::kLayerNorm, NormType::kRmsNorm}) {
    ModelConfig c = config_of(QkNorm::kHead);
    c.qk_norm.type = type;
    c.bias.qkv = true;
    TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    const std::vector<double> before = m.logits();
    std::vector<double> bias(static_cast<size_t>(c.q_width()), 0.0);
    std::fill_n(bias.begin() + c.head_dim, c.head_dim, 0.75);
    m.set("blocks.0.attn.q.bias", bias);
    const double change = worst_difference(m.logits(), before);
    if (type == NormType::kLayerNorm) {
      EXPECT_LT(change, 1e-12);
    } else {
      EXPECT_GT(change, 1e-4);
    }
  }
}

TEST(QkNormProperty, GainsMultiplyAsOnePlusThemselvesWhereTheNormsDo) {
  ModelConfig c = config_of(QkNorm::kFull);
  TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.norm.variant.unit_offset = true;
  TinyModel offset(c, DType::kFloat64, kSmallBatch, kShortLength);
  EXPECT_LT(worst_difference(plain.logits(), offset.logits()), 1e-15);
  plain.set("blocks.1.attn.k_norm.weight", std::vector<double>(c.kv_width(), 1.25));
  offset.set("blocks.1.attn.k_norm.weight", std::vector<double>(c.kv_width(), 0.25));
  EXPECT_LT(worst_difference(plain.logits(), offset.logits()), 1e-12);
}

// What is cached has been normed and rotated: tokens one at a time give the logits of all at once.
TEST(QkNormProperty, TheCacheHoldsNormedKeys) {
  for (const QkNormOrder order : {QkNormOrder::kBeforeRope, QkNormOrder::kAfterRope}) {
    for (const QkNorm kind : {QkNorm::kHead, QkNorm::kFull}) {
      ModelConfig c = config_of(kind);
      c.qk_norm.order = order;
      c.norm.placement = NormPlacement::kOutput;
      TinyModel m(c, DType::kFloat64, 1, kShortLength);
      for (const char* name : {"blocks.0.attn.k_norm.weight", "blocks.1.attn.k_norm.weight"})
        for (size_t i = 0; i < 3; ++i) scale(m, name, 1.5 + static_cast<double>(i), i, i + 1);
      const std::vector<double> whole = m.logits();
      TinyModel one(c, DType::kFloat64, 1, 1);
      copy_weights(m, one);
      model::KvCache cache = one.stage().make_cache(one.ctx(), 1, kShortLength);
      for (int64_t t = 0; t < kShortLength; ++t) {
        one.ids() = {m.ids()[t]};
        one.positions() = {static_cast<int32_t>(t)};
        one.sort();
        const Ctx ctx = one.ctx();
        const std::vector<double> got =
            one.host(one.stage().logits(ctx, one.stage().decode(ctx, Tensor(), one.batch(), cache)));
        const auto row = whole.begin() + t * c.vocab_padded();
        EXPECT_LT(worst_difference(got, {row, row + c.vocab_padded()}), 1e-12) << "token " << t;
      }
    }
  }
}

}  // namespace
}  // namespace ashlar
