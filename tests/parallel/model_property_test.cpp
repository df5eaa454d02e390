// What must hold of any correct model, whatever its weights.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/ops/norm.h"
#include "parallel/model/logits.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using testing::copy_weights;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

/// All but the tables of tokens.
void copy_weights_of_blocks(const TinyModel& from, TinyModel& to) {
  for (const auto& ref : from.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    if (name != "embed.tokens.weight" && name != "head.weight" && to.store().find(name) != nullptr)
      to.set(name, from.values(name));
  }
}

TEST(ModelProperty, RotaryScoresDependOnDistanceOnly) {
  for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
    ModelConfig c = tiny_config();
    c.rope.style = style;
    TinyModel m(c, DType::kFloat64, 2, 9);
    const std::vector<double> before = m.logits();
    for (int32_t& p : m.positions()) p += 31;
    EXPECT_LT(worst_difference(m.logits(), before), 1e-12);
    m.positions()[4] += 1;  // and not on anything less
    EXPECT_GT(worst_difference(m.logits(), before), 1e-6);
  }
}

TEST(ModelProperty, HalfAndInterleavedDifferByARowPermutation) {
  ModelConfig c = tiny_config();
  c.n_kv_heads = 2;
  c.rope.style = RopeStyle::kInterleaved;
  TinyModel interleaved(c, DType::kFloat64, 2, 9);
  c.rope.style = RopeStyle::kHalf;
  TinyModel half(c, DType::kFloat64, 2, 9);
  copy_weights(interleaved, half);
  EXPECT_GT(worst_difference(half.logits(), interleaved.logits()), 1e-6);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    for (const char* part : {"q", "k"}) {
      const std::string name = str_cat("blocks.", layer, ".attn.", part, ".weight");
      const std::vector<double> w = interleaved.values(name);
      std::vector<double> permuted = w;
      const int64_t rows = static_cast<int64_t>(w.size()) / c.d_model, r = c.rope.dims;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t head = row / c.head_dim, d = row % c.head_dim;
        if (d >= r) continue;
        const int64_t source = head * c.head_dim + (d < r / 2 ? 2 * d : 2 * (d - r / 2) + 1);
        std::copy_n(w.begin() + source * c.d_model, c.d_model, permuted.begin() + row * c.d_model);
      }
      half.set(name, permuted);
    }
  }
  EXPECT_LT(worst_difference(half.logits(), interleaved.logits()), 1e-12);
}

TEST(ModelProperty, FactorsAndOffsetsAreThoseOfTheWeights) {
  ModelConfig c = tiny_config();
  c.pos = {model::PosType::kLearned, 16};
  c.norm.variant.unit_offset = true;
  c.embed_scale = 3;
  c.logit_scale = 0.5;
  TinyModel with(c, DType::kFloat64, 2, 9);
  EXPECT_EQ(with.values("norm_final.weight"), std::vector<double>(c.d_model, 0.0)) << "1 + g begins at 1";
  with.set("norm_final.weight", std::vector<double>(c.d_model, 0.25));

  ModelConfig without = c;
  without.norm.variant.unit_offset = false;
  without.embed_scale = without.logit_scale = 1;
  TinyModel same(without, DType::kFloat64, 2, 9);
  copy_weights(with, same);
  const auto change = [&](const std::string& name, double factor, double offset) {
    std::vector<double> w = with.values(name);
    for (double& v : w) v = v * factor + offset;
    same.set(name, w);
  };
  change("embed.tokens.weight", 3, 0);
  change("head.weight", 0.5, 0);
  for (const auto& ref : with.store().sharded_tensors())
    if (ref.tensor->role == nn::Role::kNorm) change(ref.tensor->name, 1, 1);
  EXPECT_NEAR(with.loss(with.ctx()), same.loss(same.ctx()), 1e-12);
}

/// The weights of an FFN's matrix ("gate", "up", "down") of a second model from those of the first.
using FfnChange =
    std::function<std::vector<double>(const TinyModel&, const std::string& layer, const std::string& matrix)>;

/// How far the logits of a model with FFN `a` are from those of one with `b` that has the same weights but for the
/// FFNs', which `change` makes.
double ffn_difference(const model::FfnConfig& a, const model::FfnConfig& b, const FfnChange& change) {
  ModelConfig c = tiny_config();
  c.ffn = a;
  TinyModel first(c, DType::kFloat64, 2, 9);
  c.ffn = b;
  TinyModel second(c, DType::kFloat64, 2, 9);
  copy_weights(first, second);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const std::string prefix = str_cat("blocks.", layer, ".ffn.");
    for (const char* matrix : {"gate", "up", "down"}) {
      const std::string name = prefix + matrix + ".weight";
      if (second.store().find(name) != nullptr) second.set(name, change(first, prefix, matrix));
    }
  }
  return worst_difference(first.logits(), second.logits());
}

std::vector<double> times(std::vector<double> w, double factor) {
  for (double& v : w) v *= factor;
  return w;
}

// Each activation by what only it does.
TEST(ModelProperty, ActivationsAreToldApart) {
  const auto weight = [](const TinyModel& m, const std::string& layer, const std::string& matrix) {
    return m.values(layer + matrix + ".weight");
  };
  // relu2 grows with the square: twice the input is four times the output. relu does not.
  const FfnChange doubled = [&](const TinyModel& m, const std::string& layer, const std::string& matrix) {
    return times(weight(m, layer, matrix), matrix == "up" ? 2 : 0.25);
  };
  EXPECT_LT(ffn_difference({Activation::kRelu2, false}, {Activation::kRelu2, false}, doubled), 1e-12);
  EXPECT_GT(ffn_difference({Activation::kRelu, false}, {Activation::kRelu, false}, doubled), 1e-6);
  // quick_gelu is silu of 1.702 times the input, divided by that. gelu_tanh is near it and is not.
  const FfnChange scaled = [&](const TinyModel& m, const std::string& layer, const std::string& matrix) {
    return times(weight(m, layer, matrix), matrix == "gate" ? 1.702 : matrix == "down" ? 1 / 1.702 : 1);
  };
  EXPECT_LT(ffn_difference({Activation::kQuickGelu, true}, {Activation::kSilu, true}, scaled), 1e-12);
  EXPECT_GT(ffn_difference({Activation::kGeluTanh, true}, {Activation::kSilu, true}, scaled), 1e-6);
  // The bilinear layer does not care which half is called the gate. SwiGLU does.
  const FfnChange swapped = [&](const TinyModel& m, const std::string& layer, const std::string& matrix) {
    return weight(m, layer, matrix == "gate" ? "up" : matrix == "up" ? "gate" : "down");
  };
  EXPECT_LT(ffn_difference({Activation::kIdentity, true}, {Activation::kIdentity, true}, swapped), 1e-12);
  EXPECT_GT(ffn_difference({Activation::kSilu, true}, {Activation::kSilu, true}, swapped), 1e-6);
  // GLU is half open where its gate is 0.
  ModelConfig c = tiny_config();
  c.ffn = {Activation::kSigmoid, true};
  TinyModel glu(c, DType::kFloat64, 2, 9);
  c.ffn = {Activation::kIdentity, false};
  TinyModel linear(c, DType::kFloat64, 2, 9);
  copy_weights(glu, linear);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const std::string prefix = str_cat("blocks.", layer, ".ffn.");
    glu.set(prefix + "gate.weight", times(glu.values(prefix + "gate.weight"), 0));
    linear.set(prefix + "down.weight", times(glu.values(prefix + "down.weight"), 0.5));
  }
  EXPECT_LT(worst_difference(glu.logits(), linear.logits()), 1e-12);
}

// With up = 0 only the offset is left of the linear half: the layer without a gate. A clamp above every gate is none.
TEST(ModelProperty, AnOffsetOpensTheLinearHalf) {
  ModelConfig c = tiny_config();
  c.ffn = {Activation::kGeluErf, true, 1e6, 2.0};
  TinyModel gated(c, DType::kFloat64, 2, 9);
  c.ffn = {Activation::kGeluErf, false};
  TinyModel ungated(c, DType::kFloat64, 2, 9);
  copy_weights(gated, ungated);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const std::string prefix = str_cat("blocks.", layer, ".ffn.");
    ungated.set(prefix + "up.weight", gated.values(prefix + "gate.weight"));
    ungated.set(prefix + "down.weight", times(gated.values(prefix + "down.weight"), 2));
    gated.set(prefix + "up.weight", times(gated.values(prefix + "up.weight"), 0));
  }
  EXPECT_LT(worst_difference(gated.logits(), ungated.logits()), 1e-12);
}

// Tables of another width are the tables times their projections.
TEST(ModelProperty, ProjectionsFoldIntoTheTables) {
  ModelConfig c = tiny_config();
  c.pos = {model::PosType::kLearned, 16, 3};
  c.rope.dims = 0;
  c.embed_scale = 2;
  c.embed_dim = 7;
  TinyModel narrow(c, DType::kFloat64, 2, 9);
  c.embed_dim.reset();
  TinyModel folded(c, DType::kFloat64, 2, 9);
  copy_weights_of_blocks(narrow, folded);
  const int64_t V = c.vocab_size, C = c.d_model, E = 7;
  const std::vector<double> tokens = narrow.values("embed.tokens.weight"), in = narrow.values("embed.project.weight"),
                            head = narrow.values("head.weight"), out = narrow.values("head.project.weight");
  std::vector<double> embedding(V * C), logits(V * C);
  for (int64_t v = 0; v < V; ++v) {
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t e = 0; e < E; ++e) {
        embedding[v * C + i] += tokens[v * E + e] * in[i * E + e];
        logits[v * C + i] += head[v * E + e] * out[e * C + i];
      }
    }
  }
  folded.set("embed.tokens.weight", embedding);
  folded.set("head.weight", logits);
  EXPECT_LT(worst_difference(narrow.logits(), folded.logits()), 1e-12);
}

// A table with rows before position 0 is the table without them, at positions that much later; what lies before is not
// read.
TEST(ModelProperty, AnOffsetShiftsTheTableOfPositions) {
  ModelConfig c = tiny_config();
  c.rope.dims = 0;
  c.pos = {model::PosType::kLearned, 16, 2};
  TinyModel with(c, DType::kFloat64, 2, 9);
  c.pos = {model::PosType::kLearned, 18, 0};
  TinyModel without(c, DType::kFloat64, 2, 9);
  copy_weights(with, without);
  EXPECT_GT(worst_difference(with.logits(), without.logits()), 1e-6);
  for (int32_t& p : without.positions()) p += 2;
  EXPECT_EQ(with.logits(), without.logits());
  with.loss_and_gradients(with.ctx());
  const std::vector<double> grad = with.gradient("embed.positions.weight");
  for (int64_t i = 0; i < 2 * c.d_model; ++i) EXPECT_EQ(grad[i], 0.0);
}

// sin and cos of position * 10000^(-m / (half - 1)), in two halves, added to the token's row.
TEST(ModelProperty, SinusoidalPositionsAreTheTable) {
  ModelConfig c = tiny_config();
  c.rope.dims = 0;
  c.pos = {model::PosType::kSinusoidal, 0, 2};
  TinyModel sines(c, DType::kFloat64, 2, 9);
  c.pos = {model::PosType::kLearned, 9, 0};
  TinyModel table(c, DType::kFloat64, 2, 9);
  copy_weights(sines, table);
  const int64_t C = c.d_model, half = C / 2;
  std::vector<double> rows(9 * C);
  for (int64_t t = 0; t < 9; ++t) {
    for (int64_t m = 0; m < half; ++m) {
      const double angle = static_cast<double>(t + 2) / std::pow(1e4, static_cast<double>(m) / 5.0);
      rows[t * C + m] = std::sin(angle);
      rows[t * C + half + m] = std::cos(angle);
    }
  }
  table.set("embed.positions.weight", rows);
  EXPECT_LT(worst_difference(sines.logits(), table.logits()), 1e-12);
}

// The length of a head row does not count: only its direction.
TEST(ModelProperty, HeadRowsCountByDirection) {
  ModelConfig c = tiny_config();
  c.norm_rows = true;
  TinyModel normal(c, DType::kFloat64, 2, 9);
  c.norm_rows = false;
  TinyModel plain(c, DType::kFloat64, 2, 9);
  copy_weights(normal, plain);
  std::vector<double> w = normal.values("head.weight");
  for (int64_t v = 0; v < c.vocab_size; ++v) {
    double squares = 0;
    for (int64_t i = 0; i < c.d_model; ++i) squares += w[v * c.d_model + i] * w[v * c.d_model + i];
    for (int64_t i = 0; i < c.d_model; ++i) w[v * c.d_model + i] /= std::sqrt(squares);
  }
  EXPECT_GT(worst_difference(normal.logits(), plain.logits()), 1e-6);
  plain.set("head.weight", w);
  EXPECT_LT(worst_difference(normal.logits(), plain.logits()), 1e-12);
  EXPECT_NEAR(normal.loss(normal.ctx()), plain.loss(plain.ctx()), 1e-12);
  normal.set("head.weight", times(normal.values("head.weight"), 5));
  EXPECT_LT(worst_difference(normal.logits(), plain.logits()), 1e-12);
}

/// Cross-entropy of finished logits, by the textbook.
double loss_of(const TinyModel& m) {
  const ModelConfig& c = m.stage().config();
  const std::vector<double> raw = m.logits();
  const auto padded = static_cast<size_t>(c.vocab_padded()), V = static_cast<size_t>(c.vocab_size);
  double loss = 0;
  int64_t counted = 0;
  for (size_t n = 0; n < m.targets().size(); ++n) {
    if (m.targets()[n] < 0) continue;
    std::vector<double> row(raw.begin() + static_cast<int64_t>(n * padded),
                            raw.begin() + static_cast<int64_t>(n * padded + V));
    model::finish_logits(c, row);
    double sum = 0, largest = row[0];
    for (const double z : row) sum += std::exp(z);
    for (const double z : row) largest = std::max(largest, z);
    const double lse = std::log(sum), squared = c.loss.z_kind == ZKind::kLse ? lse : largest;
    loss += lse - row[static_cast<size_t>(m.targets()[n])] + c.loss.z_coef * squared * squared;
    ++counted;
  }
  return loss / static_cast<double>(counted);
}

// What generation reads and what training learns from are the same numbers.
TEST(ModelProperty, FinishedLogitsAreThoseOfTheLoss) {
  for (const int which : {0, 1, 2, 3}) {
    ModelConfig c = tiny_config();
    c.logit_scale = 3;
    c.loss.z_coef = 0.1;
    if (which == 1) c.softcap = 1;
    if (which == 2) c.loss.z_kind = ZKind::kMaxLogit;
    TinyModel m(c, DType::kFloat64, 2, 9);
    if (which == 3) {  // ids that are no target
      std::vector<bool> is_target(static_cast<size_t>(c.vocab_size));
      for (const int32_t t : m.targets())
        if (t >= 0) is_target[static_cast<size_t>(t)] = true;
      for (int64_t v = 0; v < c.vocab_size; ++v)
        if (!is_target[static_cast<size_t>(v)]) c.masked_ids.push_back(v);
      ASSERT_FALSE(c.masked_ids.empty());
      TinyModel masked(c, DType::kFloat64, 2, 9);
      EXPECT_NEAR(masked.loss(masked.ctx()), loss_of(masked), 1e-12);
      EXPECT_LT(masked.loss(masked.ctx()), m.loss(m.ctx()) - 1e-3);
      continue;
    }
    EXPECT_NEAR(m.loss(m.ctx()), loss_of(m), 1e-12) << which;
  }
}

TEST(ModelProperty, LayerNormIsRmsNormOnZeroMeanRows) {
  TinyModel m(tiny_config(), DType::kFloat64, 1, 1);
  const Ctx ctx = m.ctx();
  constexpr int64_t N = 5, C = 33;
  std::vector<double> x(N * C);
  for (int64_t n = 0; n < N; ++n) {
    double mean = 0;
    for (int64_t i = 0; i < C; ++i) mean += (x[n * C + i] = Philox::normal_at(3, n, i)) / C;
    for (int64_t i = 0; i < C; ++i) x[n * C + i] -= mean;
  }
  const Tensor t = ctx.empty(DType::kFloat64, {N, C});
  ctx.backend.write(x.data(), t.mut_view(), ctx.stream);
  const auto run = [&](NormType type) {
    return m.host(ops::norm(ctx, {.value = t}, {}, {.type = type, .eps = 1e-5}).value);
  };
  EXPECT_LT(worst_difference(run(NormType::kLayerNorm), run(NormType::kRmsNorm)), 1e-13);
}

TEST(ModelProperty, GroupedQueryIsMultiHeadWithRepeatedHeads) {
  for (const int64_t groups : {1, 2}) {
    ModelConfig c = tiny_config();
    c.n_kv_heads = groups;
    TinyModel grouped(c, DType::kFloat64, 2, 9);
    c.n_kv_heads = c.n_heads;
    TinyModel full(c, DType::kFloat64, 2, 9);
    for (const auto& ref : grouped.store().sharded_tensors()) {
      const std::string& name = ref.tensor->name;
      const std::vector<double> w = grouped.values(name);
      if (!name.ends_with(".attn.k.weight") && !name.ends_with(".attn.v.weight")) {
        full.set(name, w);
        continue;
      }
      std::vector<double> repeated;
      const int64_t head = c.head_dim * c.d_model;
      for (int64_t h = 0; h < c.n_heads; ++h) {
        const auto begin = w.begin() + h * groups / c.n_heads * head;
        repeated.insert(repeated.end(), begin, begin + head);
      }
      full.set(name, repeated);
    }
    EXPECT_LT(worst_difference(full.logits(), grouped.logits()), 1e-12) << groups << " KV heads";
  }
}

TEST(ModelProperty, LogitsDoNotMoveWhenLaterTokensChange) {
  for (const auto topology : {model::Topology::kSerial, model::Topology::kParallel}) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      ModelConfig c = tiny_config();
      c.block.topology = topology;
      constexpr int64_t T = 9, t = 4;
      TinyModel m(c, dtype, 1, T);
      const std::vector<double> before = m.logits();
      m.ids()[t + 1] = (m.ids()[t + 1] + 1) % static_cast<int32_t>(c.vocab_size);
      const std::vector<double> after = m.logits();
      const int64_t seen = (t + 1) * c.vocab_padded();
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + seen, after.begin()));
      EXPECT_FALSE(std::equal(before.begin() + seen, before.end(), after.begin() + seen));
    }
  }
}

// A token reaches W - 1 tokens on in each layer, so L (W - 1) in all: a window counts the query itself.
TEST(ModelProperty, AWindowReachesWMinusOneTokensALayer) {
  for (const auto kind : {model::WindowKind::kSliding, model::WindowKind::kChunked}) {
    ModelConfig c = tiny_config();
    c.attn.window_cycle = {3};
    c.attn.window_kind = kind;
    constexpr int64_t T = 9;
    TinyModel m(c, DType::kFloat64, 1, T);
    const std::vector<double> before = m.logits();
    m.ids()[0] = (m.ids()[0] + 1) % static_cast<int32_t>(c.vocab_size);
    const std::vector<double> after = m.logits();
    const int64_t reach = kind == model::WindowKind::kSliding ? 2 * (3 - 1) : 3 - 1;  // a chunk ends for all layers
    for (int64_t t = 0; t < T; ++t) {
      const auto row = before.begin() + t * c.vocab_padded();
      EXPECT_EQ(std::equal(row, row + c.vocab_padded(), after.begin() + t * c.vocab_padded()), t > reach) << t;
    }
    // The last layer without it sees all.
    c.attn.last_layer_full = true;
    TinyModel open(c, DType::kFloat64, 1, T);
    const std::vector<double> first = open.logits();
    open.ids()[0] = (open.ids()[0] + 1) % static_cast<int32_t>(c.vocab_size);
    const std::vector<double> second = open.logits();
    EXPECT_FALSE(std::equal(first.end() - c.vocab_padded(), first.end(), second.end() - c.vocab_padded()));
  }
}

// Behind its bias everything is at the limit: keys and values are the same for all tokens, and none sees another.
TEST(ModelProperty, ClippingStandsBehindTheBias) {
  ModelConfig c = tiny_config();
  c.bias.qkv = true;
  c.attn.clip_qkv = 0.5;
  TinyModel m(c, DType::kFloat64, 1, 6);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    for (const char* part : {"q", "k", "v"})
      m.set(str_cat("blocks.", layer, ".attn.", part, ".bias"), std::vector<double>(16, 100.0));
  }
  const std::vector<double> before = m.logits();
  m.ids()[0] = (m.ids()[0] + 1) % static_cast<int32_t>(c.vocab_size);
  const std::vector<double> after = m.logits();
  for (size_t i = c.vocab_size; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-12);
}

// Queries and keys that a norm makes equal are halved by the limit, as if scores had a quarter of their factor; in
// front of the norm the limit would leave no trace.
TEST(ModelProperty, ClippingStandsBehindANormBeforeRope) {
  ModelConfig c = tiny_config();
  c.bias.qkv = true;
  c.qk_norm = {.kind = model::QkNorm::kHead};
  c.attn.scale *= 1e-4;
  ModelConfig quarter = c;
  quarter.attn.scale = c.attn.scale / 4;
  ModelConfig clipped = c;
  clipped.attn.clip_qkv = 50;  // values are far below it
  const auto logits_of = [](const ModelConfig& config) {
    TinyModel m(config, DType::kFloat64, 1, 6);
    for (int64_t layer = 0; layer < config.n_layers; ++layer) {
      for (const char* part : {"q", "k"})
        m.set(str_cat("blocks.", layer, ".attn.", part, ".bias"), std::vector<double>(16, 1e9));
      for (const char* norm : {"q_norm", "k_norm"})
        m.set(str_cat("blocks.", layer, ".attn.", norm, ".weight"),
              std::vector<double>(static_cast<size_t>(config.head_dim), 100.0));
    }
    return m.logits();
  };
  const std::vector<double> expected = logits_of(quarter);
  EXPECT_LT(worst_difference(logits_of(clipped), expected), 1e-7);
  EXPECT_GT(worst_difference(logits_of(c), expected), 1e-5);
}

// Within a turn the temperature is a factor on the scores; it is the query's, so a key's turn is nothing to it.
TEST(ModelProperty, TemperatureIsAFactorOfTheQuerysTurn) {
  ModelConfig c = tiny_config();
  constexpr int64_t T = 8, kTurn = 4;
  TinyModel plain(c, DType::kFloat64, 1, T);
  ModelConfig scaled = c;
  scaled.attn.scale = c.attn.scale * (1 + 0.5 * std::log(2.0));
  TinyModel factor(scaled, DType::kFloat64, 1, T);
  c.n_layers = scaled.n_layers;
  c.attn.temperature_beta = 0.5;
  c.attn.temperature_positions = kTurn;
  TinyModel warm(c, DType::kFloat64, 1, T);
  const std::vector<double> got = warm.logits(), cold = plain.logits();
  const auto turn = static_cast<int64_t>(kTurn * c.vocab_padded());
  EXPECT_TRUE(std::equal(cold.begin(), cold.begin() + turn, got.begin())) << "the first turn has factor 1";
  EXPECT_GT(worst_difference(cold, got), 1e-6);
  // All positions in the second turn: rotary scores depend on distances alone, so only the factor is left.
  for (int32_t& p : warm.positions()) p = p % kTurn + kTurn;
  for (int32_t& p : factor.positions()) p = p % kTurn;
  EXPECT_LT(worst_difference(warm.logits(), factor.logits()), 1e-12);
}

// Layers that do not rotate have the temperature too.
TEST(ModelProperty, TemperatureActsWithoutRotation) {
  ModelConfig c = tiny_config();
  c.rope.base_cycle = {0.0};
  ModelConfig scaled = c;
  scaled.attn.scale = c.attn.scale * (1 + 0.5 * std::log(2.0));
  TinyModel plain(c, DType::kFloat64, 1, 8), factor(scaled, DType::kFloat64, 1, 8);
  ModelConfig heated = c;
  heated.attn.temperature_beta = 0.5;
  heated.attn.temperature_positions = 4;
  TinyModel warm(heated, DType::kFloat64, 1, 8);
  for (int32_t& p : warm.positions()) p = p % 4 + 4;
  EXPECT_LT(worst_difference(warm.logits(), factor.logits()), 1e-12);
  EXPECT_GT(worst_difference(warm.logits(), plain.logits()), 1e-6);
}

// Mean square of the residual stream after the last of L layers at initialisation.
double residual_mean_square(int64_t layers, bool depth_scaled) {
  ModelConfig c = tiny_config();
  c.d_model = 256;
  c.n_layers = layers;
  c.n_heads = c.n_kv_heads = 4;
  c.head_dim = 64;
  c.rope.dims = 64;
  c.attn.scale = 0.125;
  c.d_ff = 1024;
  c.ffn = {Activation::kGeluTanh, false};
  c.vocab_size = 97;
  c.init = {.scheme = depth_scaled ? model::InitScheme::kGpt2 : model::InitScheme::kNormal,
            .std = 0.02,
            .residual_scale = depth_scaled ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1.0};
  TinyModel m(c, DType::kFloat32, 2, 32, 2);
  const Ctx ctx = m.ctx();
  const std::vector<double> x = m.host(m.stage().blocks(ctx, m.stage().embed(ctx, m.batch()), m.batch()).value);
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

TEST(ModelProperty, DepthScaledInitKeepsTheResidualStreamFlat) {
  const double scaled = residual_mean_square(64, true) / residual_mean_square(4, true);
  const double plain = residual_mean_square(64, false) / residual_mean_square(4, false);
  EXPECT_LE(scaled, 1.6);
  EXPECT_GE(plain, 15.0);
}

TEST(ModelProperty, PackedDocumentsWithMaskEqualDocumentsAlone) {
  ModelConfig c = tiny_config();
  TinyModel packed(c, DType::kFloat64, 1, 12);
  constexpr int64_t kSplit = 5, T = 12;
  for (int64_t t = 0; t < T; ++t) {
    packed.doc_start().push_back(t < kSplit ? 0 : kSplit);
    packed.positions()[t] = static_cast<int32_t>(t < kSplit ? t : t - kSplit);
  }
  packed.sort();
  const std::vector<double> together = packed.logits();
  for (const bool second : {false, true}) {
    const int64_t begin = second ? kSplit : 0, n = second ? T - kSplit : kSplit;
    TinyModel alone(c, DType::kFloat64, 1, n);
    copy_weights(packed, alone);
    std::copy_n(packed.ids().begin() + begin, n, alone.ids().begin());
    alone.sort();
    const std::vector<double> expected = alone.logits();
    const std::vector<double> got(together.begin() + begin * c.vocab_padded(),
                                  together.begin() + (begin + n) * c.vocab_padded());
    EXPECT_LT(worst_difference(got, expected), 1e-12);
  }
}

TEST(ModelProperty, VocabularyPaddingChangesNothing) {
  ModelConfig c = tiny_config();
  c.bias.lm_head = true;
  c.loss.z_coef = 0.01;
  for (const bool tied : {false, true}) {
    c.tied = tied;
    c.vocab_pad_to = 1;
    TinyModel plain(c, DType::kFloat64, 2, 9);
    c.vocab_pad_to = 32;
    TinyModel padded(c, DType::kFloat64, 2, 9);
    copy_weights(plain, padded);
    EXPECT_NEAR(padded.loss_and_gradients(padded.ctx()), plain.loss_and_gradients(plain.ctx()), 1e-13);
    for (const auto& ref : plain.store().sharded_tensors()) {
      EXPECT_LT(worst_difference(padded.gradient(ref.tensor->name), plain.gradient(ref.tensor->name)), 1e-13)
          << ref.tensor->name;
    }
    // The padding's own rows get exactly nothing.
    const nn::Parameter* table = padded.store().find(tied ? "embed.tokens.weight" : "head.weight")->parameter;
    const std::vector<double> grad = padded.host(table->weight.main_grad);
    for (size_t i = c.vocab_size * c.d_model; i < grad.size(); ++i) ASSERT_EQ(grad[i], 0.0);
  }
}

TEST(ModelProperty, SerialAndParallelStartWithTheSameWeights) {
  ModelConfig c = tiny_config();
  TinyModel serial(c, DType::kFloat32, 1, 4);
  c.block = {model::Topology::kParallel, 1};
  TinyModel parallel(c, DType::kFloat32, 1, 4);
  int64_t shared = 0;
  for (const auto& ref : parallel.store().sharded_tensors()) {
    ASSERT_NE(serial.store().find(ref.tensor->name), nullptr) << ref.tensor->name;
    EXPECT_EQ(serial.values(ref.tensor->name), parallel.values(ref.tensor->name)) << ref.tensor->name;
    ++shared;
  }
  EXPECT_GT(shared, 10);
}

}  // namespace
}  // namespace ashlar
