// Layers of two kinds, with a window and with full attention, and what only some blocks have: properties that hold for
// one form and not for its neighbours.
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/model/parameter_count.h"
#include "parallel/model/rope_frequencies.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::QkNorm;
using model::QkNormOrder;
using model::RopeScaling;
using testing::copy_weights;
using testing::kShortLength;
using testing::kSmallBatch;
using testing::logits_of;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

/// A window in the first layer, full attention in the second.
ModelConfig two_kinds() {
  ModelConfig c = tiny_config();
  c.attn.window_cycle = {3, -1};
  return c;
}

TEST(LayerKinds, BasesFollowTheKind) {
  ModelConfig c = two_kinds(), by_layer = two_kinds();
  c.rope.local_base = 100;
  by_layer.rope.base_cycle = {100.0, 1e4};
  EXPECT_EQ(logits_of(c), logits_of(by_layer));
  by_layer.rope.base_cycle = {1e4, 100.0};
  EXPECT_GT(worst_difference(logits_of(c), logits_of(by_layer)), 1e-6);
  c = two_kinds();
  c.rope.global_enabled = false;
  by_layer.rope.base_cycle = {1e4, 0.0};
  EXPECT_EQ(logits_of(c), logits_of(by_layer));
  by_layer.rope.base_cycle = {0.0, 1e4};
  EXPECT_GT(worst_difference(logits_of(c), logits_of(by_layer)), 1e-6);
  c.attn.window_kind = model::WindowKind::kChunked;  // a chunk is a window too
  by_layer.attn.window_kind = model::WindowKind::kChunked;
  by_layer.rope.base_cycle = {1e4, 0.0};
  EXPECT_EQ(logits_of(c), logits_of(by_layer));
}

/// The first layer rotates, the second does not.
ModelConfig one_rotates() {
  ModelConfig c = tiny_config();
  c.rope.base_cycle = {1e4, 0.0};
  return c;
}

TEST(LayerKinds, TheQkNormIsThatOfLayersThatRotate) {
  using model::RotationKind;
  for (const QkNorm kind : {QkNorm::kL2, QkNorm::kHead}) {
    ModelConfig c = one_rotates();
    const std::vector<double> without = logits_of(c);
    c.qk_norm = {.kind = kind, .order = QkNormOrder::kAfterRope};
    const std::vector<double> all = logits_of(c);
    c.qk_norm.layers = RotationKind::kRotated;
    const std::vector<double> rotated = logits_of(c);
    c.qk_norm.layers = RotationKind::kUnrotated;
    const std::vector<double> unrotated = logits_of(c);
    EXPECT_GT(worst_difference(rotated, without), 1e-6);
    EXPECT_GT(worst_difference(rotated, all), 1e-6);
    EXPECT_GT(worst_difference(rotated, unrotated), 1e-6);
    c.rope.base_cycle = {0.0};
    EXPECT_EQ(model::has_qk_norm(c, 1), true);
    const std::vector<double> all_unrotated = logits_of(c);
    c.qk_norm.layers = RotationKind::kAll;
    EXPECT_EQ(logits_of(c), all_unrotated);
    c.qk_norm.layers = RotationKind::kRotated;
    const std::vector<double> none = logits_of(c);
    c.qk_norm = {};
    EXPECT_EQ(logits_of(c), none);
  }
  ModelConfig c = one_rotates();
  c.qk_norm = {.kind = QkNorm::kHead, .layers = RotationKind::kRotated};
  EXPECT_EQ(model::count_parameters(c).norms, 5 * c.d_model + 2 * c.head_dim);
}

TEST(LayerKinds, TheTemperatureIsThatOfLayersThatDoNotRotate) {
  using model::RotationKind;
  ModelConfig c = one_rotates();
  const std::vector<double> cold = logits_of(c);
  c.attn.temperature_beta = 0.5;
  c.attn.temperature_positions = 2;
  const std::vector<double> all = logits_of(c);
  c.attn.temperature_layers = RotationKind::kUnrotated;
  const std::vector<double> unrotated = logits_of(c);
  c.attn.temperature_layers = RotationKind::kRotated;
  const std::vector<double> rotated = logits_of(c);
  EXPECT_GT(worst_difference(unrotated, cold), 1e-6);
  EXPECT_GT(worst_difference(unrotated, all), 1e-6);
  EXPECT_GT(worst_difference(unrotated, rotated), 1e-6);
  c.rope.base_cycle.clear();
  const std::vector<double> everywhere = logits_of(c);
  c.attn.temperature_layers = RotationKind::kAll;
  EXPECT_EQ(logits_of(c), everywhere);
  c.attn.temperature_layers = RotationKind::kUnrotated;
  const std::vector<double> nowhere = logits_of(c);
  c.attn.temperature_positions = 0;
  c.attn.temperature_beta = 0;
  EXPECT_EQ(logits_of(c), nowhere);
}

// Of dynamic scaling, which is another base: 10^(4/2) times.
TEST(LayerKinds, ScalingIsThatOfFullLayersAlone) {
  ModelConfig c = two_kinds(), by_layer = two_kinds();
  c.rope.scaling = RopeScaling::kDynamic;
  c.rope.alpha = 10;
  by_layer.rope.base_cycle = {1e6, 1e6};
  EXPECT_LT(worst_difference(logits_of(c), logits_of(by_layer)), 1e-12);
  c.rope.scaled_layers = model::ScaledLayers::kFull;
  EXPECT_GT(worst_difference(logits_of(c), logits_of(by_layer)), 1e-6);
  by_layer.rope.base_cycle = {1e4, 1e6};
  EXPECT_LT(worst_difference(logits_of(c), logits_of(by_layer)), 1e-12);
}

// A factor on cos and sin of layers that are not scaled would be seen as well.
TEST(LayerKinds, TheAttentionFactorIsThatOfScaledLayers) {
  ModelConfig c = two_kinds();
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.factor = 1;  // leaves the frequencies
  c.rope.original_positions = 8;
  c.rope.attention_factor = 1.5;
  c.rope.scaled_layers = model::ScaledLayers::kFull;
  const std::vector<double> with = logits_of(c);
  TinyModel plain(two_kinds(), DType::kFloat64, kSmallBatch, kShortLength);
  EXPECT_GT(worst_difference(plain.logits(), with), 1e-6);
  std::vector<double> q = plain.values("blocks.1.attn.q.weight");
  for (double& w : q) w *= 1.5 * 1.5;
  plain.set("blocks.1.attn.q.weight", q);
  EXPECT_LT(worst_difference(plain.logits(), with), 1e-12);
}

TEST(LayerKinds, ProportionalPairsAreThoseOfTheirLayersHeads) {
  ModelConfig c = two_kinds();
  c.attn.global_head_dim = 8;
  c.rope.global_dims = 4;
  c.rope.scaling = RopeScaling::kProportional;
  c.rope.scaled_layers = model::ScaledLayers::kFull;
  const model::LayerRope local = model::rope_of(c, 0), full = model::rope_of(c, 1);
  EXPECT_EQ(local.turned, 4);
  EXPECT_EQ(full.turned, 8);
  EXPECT_EQ(model::rope_frequencies(c, local, 8), (std::vector<double>{1, 0.01}));
  const std::vector<double> frequencies = model::rope_frequencies(c, full, 8);
  ASSERT_EQ(frequencies.size(), 4U);
  EXPECT_NEAR(frequencies[1], 0.1, 1e-16);  // 10000^(-2/8)
  EXPECT_EQ(frequencies[2], 0);
  // Without a number of their own their share is that of the others: the whole head.
  c.rope.global_dims.reset();
  EXPECT_EQ(model::rope_of(c, 1).dims, 8);
  const std::vector<double> whole = logits_of(c);
  c.rope.scaling = RopeScaling::kNone;  // of whole heads it is none
  EXPECT_EQ(logits_of(c), whole);
  c.rope.global_dims = 4;
  EXPECT_GT(worst_difference(logits_of(c), whole), 1e-6);
}

TEST(LayerKinds, HeadsOfFullLayersAreTheirOwn) {
  // All layers full: another way to say the same.
  ModelConfig all = tiny_config(), plain = tiny_config();
  all.attn.global_head_dim = 6;
  all.attn.global_n_kv_heads = 2;
  plain.head_dim = plain.rope.dims = 6;
  plain.n_kv_heads = 2;
  EXPECT_EQ(logits_of(all), logits_of(plain));
  // Wider heads whose further columns are zero are narrow heads.
  ModelConfig wide = two_kinds(), narrow = two_kinds();
  for (ModelConfig* c : {&wide, &narrow}) {
    c->pos.type = model::PosType::kNone;
    c->rope = {};
    c->attn.global_n_kv_heads = 2;
  }
  wide.attn.global_head_dim = 6;
  TinyModel a(wide, DType::kFloat64, kSmallBatch, kShortLength), b(narrow, DType::kFloat64, kSmallBatch, kShortLength);
  for (const auto& ref : b.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    const std::vector<double> w = b.values(name);
    if (!name.starts_with("blocks.1.attn.")) {
      a.set(name, w);
      continue;
    }
    const bool columns = name == "blocks.1.attn.out.weight";  // heads are columns of it
    const int64_t heads = name.ends_with("k.weight") || name.ends_with("v.weight") ? 2 : 4;
    std::vector<double> padded(a.values(name).size(), 0.0);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < 4; ++d)
        for (int64_t i = 0; i < 12; ++i) {
          if (columns) {
            padded[i * heads * 6 + h * 6 + d] = w[i * heads * 4 + h * 4 + d];
          } else {
            padded[(h * 6 + d) * 12 + i] = w[(h * 4 + d) * 12 + i];
          }
        }
    a.set(name, padded);
  }
  EXPECT_LT(worst_difference(a.logits(), b.logits()), 1e-12);
}

// Values are the keys before norm, gain and rotation: a model whose value matrices are its key matrices.
TEST(LayerKinds, ValuesAreTheKeysBeforeAnythingIsDoneToThem) {
  for (const QkNormOrder order : {QkNormOrder::kBeforeRope, QkNormOrder::kAfterRope}) {
    for (const bool bias : {false, true}) {
      ModelConfig c = two_kinds();
      c.n_kv_heads = 2;
      c.qk_norm = {.kind = QkNorm::kHead, .order = order};
      c.bias.qkv = bias;
      TinyModel apart(c, DType::kFloat64, kSmallBatch, kShortLength);
      c.attn.k_eq_v = true;
      TinyModel one(c, DType::kFloat64, kSmallBatch, kShortLength);
      EXPECT_NE(one.store().find("blocks.0.attn.v.weight"), nullptr);
      EXPECT_EQ(one.store().find("blocks.1.attn.v.weight"), nullptr);
      apart.set("blocks.1.attn.k_norm.weight", {0.5, 2, 1.5, 0.7});
      if (bias) apart.set("blocks.1.attn.k.bias", std::vector<double>(8, 0.3));
      copy_weights(apart, one);
      EXPECT_GT(worst_difference(apart.logits(), one.logits()), 1e-4);
      apart.set("blocks.1.attn.v.weight", apart.values("blocks.1.attn.k.weight"));
      if (bias) apart.set("blocks.1.attn.v.bias", apart.values("blocks.1.attn.k.bias"));
      EXPECT_LT(worst_difference(apart.logits(), one.logits()), 1e-12);
    }
  }
}

// The size of a head's values counts for nothing, of each head by itself and without a gain.
TEST(LayerKinds, ValueNormHidesTheSizeOfEachHead) {
  ModelConfig c = two_kinds();
  c.norm.variant.eps = 1e-30;
  for (const bool norm : {true, false}) {
    c.attn.v_norm = norm;
    TinyModel m(c, DType::kFloat64, kSmallBatch, kShortLength);
    const std::vector<double> before = m.logits();
    for (const char* name : {"blocks.0.attn.v.weight", "blocks.1.attn.v.weight"}) {
      std::vector<double> w = m.values(name);
      for (size_t i = 0; i < 4 * 12; ++i) w[i] *= 3;  // of the first head
      m.set(name, w);
    }
    const double moved = worst_difference(m.logits(), before);
    if (norm) {
      EXPECT_LT(moved, 1e-12);
    } else {
      EXPECT_GT(moved, 1e-3);
    }
    for (const auto& ref : m.store().sharded_tensors()) EXPECT_EQ(ref.tensor->name.find("v_norm"), std::string::npos);
  }
}

// All that the block makes, what it got included, and not its branches alone.
TEST(LayerKinds, TheScalarOfABlockMultipliesTheWholeStream) {
  ModelConfig c = two_kinds();
  const auto stream_behind = [](const TinyModel& m, int64_t layer) {
    const Ctx ctx = m.ctx();
    const model::BatchView rows = m.batch();
    std::vector<double> found;
    m.stage().blocks(ctx, m.stage().embed(ctx, rows), rows, [&](int64_t layers, const Tensor& h) {
      if (layers == layer) found = m.host(h);
    });
    return found;
  };
  for (const model::Topology topology : {model::Topology::kSerial, model::Topology::kParallel}) {
    c.block = {.topology = topology};
    TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
    c.block.out_scalar = true;
    TinyModel scaled(c, DType::kFloat64, kSmallBatch, kShortLength);
    EXPECT_EQ(scaled.values("blocks.0.out_scalar"), (std::vector<double>{1}));
    EXPECT_EQ(scaled.logits(), plain.logits());
    scaled.set("blocks.0.out_scalar", {-2});
    std::vector<double> expected = stream_behind(plain, 1);
    for (double& x : expected) x *= -2;
    EXPECT_EQ(stream_behind(scaled, 1), expected);
  }
}

/// The model says the same with another way to say how its layers rotate.
void expect_same_canonical(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(model::with_canonical_rope(a), model::with_canonical_rope(b));
  EXPECT_EQ(logits_of(model::with_canonical_rope(a)), logits_of(a));
}

TEST(CanonicalRope, IsTheSameForTheSameByLayer) {
  ModelConfig a = two_kinds(), b = two_kinds();
  a.rope.local_base = 100;
  b.rope.base_cycle = {100.0, 1e4, 100.0, 1e4};
  expect_same_canonical(a, b);
  a.rope.local_base = a.rope.base;  // no other one
  expect_same_canonical(a, two_kinds());
  a = two_kinds();
  a.rope.global_enabled = false;
  b.rope.base_cycle = {1e4, 0};
  expect_same_canonical(a, b);
  EXPECT_NE(model::with_canonical_rope(a), model::with_canonical_rope(two_kinds()));
  // Without full layers nothing of theirs counts.
  a.attn.window_cycle = b.attn.window_cycle = {3};
  a.rope.scaling = RopeScaling::kLinear;
  a.rope.factor = 3;
  a.rope.scaled_layers = model::ScaledLayers::kFull;
  b.rope.base_cycle.clear();
  expect_same_canonical(a, b);
  // All that rotate are scaled.
  a = b = two_kinds();
  for (ModelConfig* c : {&a, &b}) {
    c->attn.window_cycle = {-1};
    c->rope.scaling = RopeScaling::kLinear;
    c->rope.factor = 3;
  }
  a.rope.scaled_layers = model::ScaledLayers::kFull;
  a.rope.global_dims = 4;
  expect_same_canonical(a, b);
}

}  // namespace
}  // namespace ashlar
