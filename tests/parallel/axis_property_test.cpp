// Axes of the block and of the ends of the model, each told from its neighbours by what only it does.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::NormAffine;
using model::PosType;
using model::Topology;
using testing::copy_weights;
using testing::kShortLength;
using testing::kSmallBatch;
using testing::logits_of;
using testing::scale;
using testing::streams;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

std::vector<double> numbers(int64_t n, uint64_t seed) {
  std::vector<double> all(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) all[static_cast<size_t>(i)] = 0.5 + std::abs(Philox::normal_at(seed, 5, i));
  return all;
}

/// w [rows, x.size()] times x.
std::vector<double> product(const std::vector<double>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r)
    for (size_t i = 0; i < x.size(); ++i) y[r] += w[r * x.size() + i] * x[i];
  return y;
}

/// Multiplies the columns of a matrix.
void scale_columns(TinyModel& m, const std::string& name, const std::vector<double>& by) {
  std::vector<double> w = m.values(name);
  for (size_t i = 0; i < w.size(); ++i) w[i] *= by[i % by.size()];
  m.set(name, w);
}

std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

/// Blocks that add nothing: the stream is the embedding.
void silence(TinyModel& m) {
  for (int64_t i = 0; i < m.stage().config().n_layers; ++i)
    for (const char* last : {".attn.out.weight", ".ffn.down.weight"}) scale(m, str_cat("blocks.", i, last), 0);
}

TEST(NormAxis, OnlyALayerNormForgetsTheMeanOfTheStream) {
  for (const NormType type : {NormType::kLayerNorm, NormType::kRmsNorm}) {
    for (const NormAffine affine : {NormAffine::kNone, NormAffine::kScaleBias}) {
      ModelConfig c = tiny_config();
      c.norm.variant.type = type;
      c.norm.affine = affine;
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      const std::vector<double> before = m.logits();
      std::vector<double> table = m.values("embed.tokens.weight");
      for (double& x : table) x += 0.75;
      m.set("embed.tokens.weight", table);
      const double moved = worst_difference(m.logits(), before);
      if (type == NormType::kLayerNorm) {
        EXPECT_LT(moved, 1e-12);
      } else {
        EXPECT_GT(moved, 1e-3);
      }
    }
  }
}

// Of a stream three times as large, whose squares are nine times as large.
TEST(NormAxis, EpsIsAddedToTheSquaresUnderTheRoot) {
  for (const NormType type : {NormType::kLayerNorm, NormType::kRmsNorm}) {
    const auto logits = [&](double size, double eps) {
      ModelConfig c = tiny_config();
      c.norm.variant.type = type;
      c.norm.variant.eps = eps;
      c.embed_scale = size;
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      silence(m);
      return m.logits();
    };
    const std::vector<double> once = logits(1, 0.25);
    EXPECT_LT(worst_difference(once, logits(3, 9 * 0.25)), 1e-12);
    EXPECT_GT(worst_difference(once, logits(3, 3 * 0.25)), 1e-3);
  }
}

TEST(NormAxis, OnlyAFinalNormHidesTheSizeOfTheStream) {
  for (const bool final : {true, false}) {
    const auto logits = [&](double size) {
      ModelConfig c = tiny_config();
      c.norm.variant.eps = 1e-30;
      c.norm.final = final;
      c.embed_scale = size;
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      EXPECT_EQ(m.store().find("norm_final.weight") != nullptr, final);
      silence(m);
      return m.logits();
    };
    std::vector<double> expected = logits(1);
    if (!final)
      for (double& z : expected) z *= 3;
    EXPECT_LT(worst_difference(logits(3), expected), 1e-12);
  }
}

// What a norm adds last comes out of a matrix behind it as a bias does: so a norm's bias stands behind its gain, and
// that of a matrix before rotation, norm of heads and activation.
TEST(BiasAxis, ABiasBehindAMatrixIsOneOfTheNormBeforeIt) {
  for (const bool gated : {true, false}) {
    ModelConfig c = tiny_config();
    c.norm.affine = NormAffine::kScaleBias;
    c.bias = {true, true, true, true};
    c.ffn.gated = gated;
    c.n_kv_heads = 2;
    c.qk_norm.kind = model::QkNorm::kHead;
    TinyModel norms(c, DType::kFloat64, kSmallBatch, kShortLength);
    struct Behind {
      std::string norm;
      std::vector<std::string> matrices;
    };
    std::vector<Behind> all = {{"norm_final", {"head"}}};
    for (int64_t i = 0; i < c.n_layers; ++i) {
      const std::string block = str_cat("blocks.", i, ".");
      all.push_back({block + "norm1", {block + "attn.q", block + "attn.k", block + "attn.v"}});
      all.push_back({block + "norm2", {block + "ffn.up"}});
      if (gated) all.back().matrices.push_back(block + "ffn.gate");
    }
    for (size_t n = 0; n < all.size(); ++n) norms.set(all[n].norm + ".weight", numbers(c.d_model, n));
    TinyModel matrices(c, DType::kFloat64, kSmallBatch, kShortLength);
    copy_weights(norms, matrices);
    const std::vector<double> without = norms.logits();
    for (size_t n = 0; n < all.size(); ++n) {
      const std::vector<double> bias = numbers(c.d_model, 100 + n);
      norms.set(all[n].norm + ".bias", bias);
      for (const std::string& name : all[n].matrices)
        matrices.set(name + ".bias", product(matrices.values(name + ".weight"), bias));
    }
    EXPECT_GT(worst_difference(norms.logits(), without), 1e-2);
    EXPECT_LT(worst_difference(norms.logits(), matrices.logits()), 1e-12);
  }
}

// Probabilities sum to one; and nothing but the residual sum stands behind the bias of the last layer's last matrix.
TEST(BiasAxis, OutputBiasesAreAddedOnce) {
  ModelConfig c = tiny_config();
  c.bias = {true, true, true, false};
  c.norm.final = false;
  TinyModel values(c, DType::kFloat64, kSmallBatch, kShortLength);
  TinyModel outputs(c, DType::kFloat64, kSmallBatch, kShortLength);
  const std::vector<double> before = values.logits(), bias = numbers(c.q_width(), 3);
  values.set("blocks.0.attn.v.bias", bias);
  outputs.set("blocks.0.attn.out.bias", product(outputs.values("blocks.0.attn.out.weight"), bias));
  EXPECT_GT(worst_difference(values.logits(), before), 1e-2);
  EXPECT_LT(worst_difference(values.logits(), outputs.logits()), 1e-12);

  std::vector<double> expected = values.logits();
  const std::vector<double> last = numbers(c.d_model, 4), moved = product(values.values("head.weight"), last);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += moved[i % moved.size()];
  values.set("blocks.1.ffn.down.bias", last);
  EXPECT_LT(worst_difference(values.logits(), expected), 1e-12);
}

// What both branches of a parallel block add is what each adds alone.
TEST(BlockAxis, OnlyBranchesOfASerialBlockSeeEachOther) {
  for (const model::BlockConfig& block :
       {model::BlockConfig{Topology::kParallel, 1}, model::BlockConfig{Topology::kParallel, 2}, model::BlockConfig{}}) {
    ModelConfig c = tiny_config();
    c.block = block;
    const auto added = [&](bool attention, bool feed_forward) {
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      if (!attention) scale(m, "blocks.0.attn.out.weight", 0);
      if (!feed_forward) scale(m, "blocks.0.ffn.down.weight", 0);
      const auto stream = streams(m);
      return minus(stream[1], stream[0]);
    };
    const double together = worst_difference(minus(added(true, true), added(true, false)), added(false, true));
    if (block.topology == Topology::kParallel) {
      EXPECT_LT(together, 1e-12);
    } else {
      EXPECT_GT(together, 1e-3);
    }
  }
}

// A gain is a factor on the columns of what reads the normed rows: of all five matrices, or of its own branch's.
TEST(BlockAxis, ParallelNormsAreSharedOrEachBranchsOwn) {
  ModelConfig c = tiny_config();
  c.block = {Topology::kParallel, 1};
  const TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
  const std::vector<double> gain = numbers(c.d_model, 6);
  const auto expect_behind = [&](int norms, const char* norm, const std::vector<const char*>& readers) {
    TinyModel columns(c, DType::kFloat64, kSmallBatch, kShortLength);
    for (const char* reader : readers) scale_columns(columns, str_cat("blocks.0.", reader, ".weight"), gain);
    ModelConfig config = c;
    config.block.parallel_norms = norms;
    TinyModel m(config, DType::kFloat64, kSmallBatch, kShortLength);
    copy_weights(plain, m);
    EXPECT_LT(worst_difference(m.logits(), plain.logits()), 1e-12) << "gains begin at 1";
    m.set(str_cat("blocks.0.", norm, ".weight"), gain);
    EXPECT_GT(worst_difference(m.logits(), plain.logits()), 1e-3);
    EXPECT_LT(worst_difference(m.logits(), columns.logits()), 1e-12) << norms << " norms, " << norm;
  };
  expect_behind(1, "norm1", {"attn.q", "attn.k", "attn.v", "ffn.gate", "ffn.up"});
  expect_behind(2, "norm1", {"attn.q", "attn.k", "attn.v"});
  expect_behind(2, "norm2", {"ffn.gate", "ffn.up"});
}

// Branch outputs are dropped, and scaled up, where they join the stream: behind a norm of theirs. So are embeddings.
TEST(DropoutAxis, StandsBehindTheEmbeddingAndBehindEachBranch) {
  for (const auto placement : {model::NormPlacement::kPre, model::NormPlacement::kSandwich}) {
    ModelConfig c = tiny_config();
    c.pos = {PosType::kLearned, 16};
    c.rope.dims = 0;
    c.norm.placement = placement;
    TinyModel without(c, DType::kFloat64, kSmallBatch, kShortLength);
    const auto expect_dropped = [&](const std::vector<double>& got, const std::vector<double>& whole, double p) {
      int64_t zeros = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == 0) {
          ++zeros;
        } else {
          EXPECT_NEAR(got[i], whole[i] / (1 - p), 1e-12);
        }
      }
      const double share = static_cast<double>(zeros) / static_cast<double>(got.size());
      EXPECT_NEAR(share, p, 4 * std::sqrt(p * (1 - p) / static_cast<double>(got.size())));
    };
    const auto dropped = [&](const model::DropoutConfig& dropout, const char* silent) {
      c.dropout = dropout;
      TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
      Ctx ctx = m.ctx();
      ctx.dropout = {.enabled = true, .seed = 5, .first_sample = 3, .sequence_length = kShortLength};
      scale(m, silent, 0);
      return streams(m, ctx);
    };
    for (const char* silent : {"blocks.0.attn.out.weight", "blocks.0.ffn.down.weight"}) {
      TinyModel one_branch(c, DType::kFloat64, kSmallBatch, kShortLength);
      copy_weights(without, one_branch);
      scale(one_branch, silent, 0);
      const auto whole = streams(one_branch);
      expect_dropped(dropped({.embed = 0.4}, silent)[0], whole[0], 0.4);
      const auto got = dropped({.resid = 0.3}, silent);
      EXPECT_EQ(got[0], whole[0]);
      expect_dropped(minus(got[1], got[0]), minus(whole[1], whole[0]), 0.3);
    }
  }
}

// Far beyond the limit only signs are left: of the linear half both, of the gate the limit above and all below.
TEST(FfnAxis, AClampHoldsTheLinearHalfOnBothSidesAndTheGateAbove) {
  const auto moved = [](Activation act, std::optional<double> clamp, const char* half) {
    ModelConfig c = tiny_config();
    c.ffn = {.act = act, .gated = true, .clamp = clamp};
    c.norm.final = false;  // which would hide how large the last layer's output is
    TinyModel near(c, DType::kFloat64, kSmallBatch, kShortLength), far(c, DType::kFloat64, kSmallBatch, kShortLength);
    for (int64_t i = 0; i < c.n_layers; ++i) {
      scale(near, str_cat("blocks.", i, ".ffn.", half, ".weight"), 1e6);
      scale(far, str_cat("blocks.", i, ".ffn.", half, ".weight"), 1e7);
    }
    return worst_difference(near.logits(), far.logits());
  };
  EXPECT_LT(moved(Activation::kRelu, 0.5, "up"), 1e-12);
  EXPECT_LT(moved(Activation::kRelu, 0.5, "gate"), 1e-12);  // relu takes what the clamp leaves below
  EXPECT_LT(moved(Activation::kIdentity, 0.5, "up"), 1e-12);
  EXPECT_GT(moved(Activation::kIdentity, 0.5, "gate"), 1e-3);
  EXPECT_GT(moved(Activation::kRelu, std::nullopt, "up"), 1e-3);
}

// The offset of the linear half is not held by the clamp.
TEST(FfnAxis, TheOffsetStandsBehindTheClamp) {
  const auto logits = [](std::optional<double> clamp) {
    ModelConfig c = tiny_config();
    c.ffn = {.act = Activation::kSigmoid, .gated = true, .clamp = clamp, .linear_offset = 2};
    TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    for (int64_t i = 0; i < c.n_layers; ++i)
      for (const char* half : {".ffn.up.weight", ".ffn.gate.weight"}) scale(m, str_cat("blocks.", i, half), 0);
    return m.logits();
  };
  EXPECT_EQ(logits(0.25), logits(std::nullopt));
}

// In one layer the last token sees those before it as a set, unless something says where they stand.
TEST(PositionAxis, OnlyWithoutPositionsThePastIsASet) {
  for (const PosType type :
       {PosType::kNone, PosType::kLearned, PosType::kSinusoidal, PosType::kRope, PosType::kAlibi, PosType::kT5Bias}) {
    ModelConfig c = tiny_config();
    c.n_layers = 1;
    c.pos.type = type;
    if (type == PosType::kLearned) c.pos.max_positions = 16;
    if (type != PosType::kRope) c.rope.dims = 0;
    TinyModel m(c, DType::kFloat64, 1, kShortLength);
    const auto last_token = [&] {
      const std::vector<double> all = m.logits();
      return std::vector<double>(all.end() - c.vocab_padded(), all.end());
    };
    const std::vector<double> before = last_token();
    ASSERT_NE(m.ids()[0], m.ids()[4]);
    std::swap(m.ids()[0], m.ids()[4]);
    const double moved = worst_difference(last_token(), before);
    if (type == PosType::kNone) {
      EXPECT_LT(moved, 1e-12);
    } else {
      EXPECT_GT(moved, 1e-5) << name_of(type);
    }
  }
}

// A sink that takes all leaves its own query head nothing, whatever heads share its keys; one far below takes nothing.
TEST(AttentionAxis, ASinkIsThatOfItsQueryHead) {
  ModelConfig c = tiny_config();
  c.n_kv_heads = 2;
  TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.attn.sinks = true;
  TinyModel sunk(c, DType::kFloat64, kSmallBatch, kShortLength);
  copy_weights(plain, sunk);
  for (const char* name : {"blocks.0.attn.sinks", "blocks.1.attn.sinks"}) sunk.set(name, {-1e4, -1e4, -1e4, -1e4});
  EXPECT_LT(worst_difference(sunk.logits(), plain.logits()), 1e-12);
  sunk.set("blocks.1.attn.sinks", {-1e4, 1e4, -1e4, -1e4});
  std::vector<double> out = plain.values("blocks.1.attn.out.weight");
  for (size_t i = 0; i < out.size(); ++i)
    if (i % 16 / 4 == 1) out[i] = 0;
  plain.set("blocks.1.attn.out.weight", out);
  EXPECT_LT(worst_difference(sunk.logits(), plain.logits()), 1e-12);
}

// Scores far below the cap pass it; far above they are the cap.
TEST(AttentionAxis, TheSoftcapHoldsScaledScores) {
  ModelConfig c = tiny_config();
  const auto with = [&](double scale, std::optional<double> softcap) {
    ModelConfig changed = c;
    changed.attn.scale = scale;
    changed.attn.softcap = softcap;
    return logits_of(changed);
  };
  EXPECT_LT(worst_difference(with(0.5, 1e8), with(0.5, std::nullopt)), 1e-9);
  EXPECT_LT(worst_difference(with(1e9, 1), with(1e10, 1)), 1e-6);
  EXPECT_GT(worst_difference(with(1e9, 1), with(1e9, 2)), 1e-3);
}

TEST(HeadAxis, ATiedHeadIsTheTableTwice) {
  ModelConfig c = tiny_config();
  c.embed_scale = 2;
  TinyModel untied(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.tied = true;
  TinyModel tied(c, DType::kFloat64, kSmallBatch, kShortLength);
  copy_weights(tied, untied);
  EXPECT_GT(worst_difference(tied.logits(), untied.logits()), 1e-3);
  untied.set("head.weight", tied.values("embed.tokens.weight"));
  EXPECT_LT(worst_difference(tied.logits(), untied.logits()), 1e-12);
  EXPECT_NEAR(tied.loss_and_gradients(tied.ctx()), untied.loss_and_gradients(untied.ctx()), 1e-13);
  std::vector<double> sum = untied.gradient("embed.tokens.weight");
  const std::vector<double> head = untied.gradient("head.weight");
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += head[i];
  EXPECT_LT(worst_difference(tied.gradient("embed.tokens.weight"), sum), 1e-13);
}

}  // namespace
}  // namespace ashlar
