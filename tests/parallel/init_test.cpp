// Initial values by scheme: the deviation of each tensor of a model, measured, and the published figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include "parallel/model/init.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::InitScheme;
using model::ModelConfig;
using testing::TinyModel;

constexpr int64_t kC = 96, kHeads = 4, kD = 40, kF = 200, kV = 301, kLayers = 3;

ModelConfig config_with(InitScheme scheme) {
  ModelConfig c = testing::tiny_config();
  c.d_model = kC;
  c.n_layers = kLayers;
  c.n_heads = kHeads;
  c.n_kv_heads = 2;
  c.head_dim = c.rope.dims = kD;
  c.d_ff = kF;
  c.vocab_size = kV;
  c.init = {.scheme = scheme, .std = 0.05};
  return c;
}

/// Which matrix, and in which layer: numbers of inputs and outputs, whether it makes queries or writes to the stream.
struct Matrix {
  std::string name;
  double in, out;
  bool queries = false, residual = false;
  double layer = -1;
};

std::vector<Matrix> matrices() {
  std::vector<Matrix> all = {{.name = "head.weight", .in = kC, .out = kV}};
  for (int l = 0; l < kLayers; ++l) {
    const std::string block = str_cat("blocks.", l, ".");
    const auto layer = static_cast<double>(l);
    all.push_back({.name = block + "attn.q.weight", .in = kC, .out = kHeads * kD, .queries = true, .layer = layer});
    for (const char* name : {"attn.k.weight", "attn.v.weight"})
      all.push_back({.name = block + name, .in = kC, .out = 2 * kD, .layer = layer});
    for (const char* name : {"ffn.gate.weight", "ffn.up.weight"})
      all.push_back({.name = block + name, .in = kC, .out = kF, .layer = layer});
    all.push_back({.name = block + "attn.out.weight", .in = kHeads * kD, .out = kC, .residual = true, .layer = layer});
    all.push_back({.name = block + "ffn.down.weight", .in = kF, .out = kC, .residual = true, .layer = layer});
  }
  return all;
}

/// The deviation of these numbers within five times its own.
void expect_deviation(const std::vector<double>& values, double expected, const std::string& name) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v, squares += v * v;
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(std::sqrt(squares / n), expected, 5 * expected / std::sqrt(2 * n)) << name;
  EXPECT_NEAR(sum / n, 0, 5 * expected / std::sqrt(n)) << name;
}

struct Scheme {
  const char* name;
  InitScheme scheme;
  std::function<double(const Matrix&)> deviation;
};

/// By the papers' words, not by the program's.
const Scheme kSchemes[] = {
    {"normal", InitScheme::kNormal, [](const Matrix&) { return 0.05; }},
    {"gpt2", InitScheme::kGpt2, [](const Matrix&) { return 0.05; }},
    {"small_wang", InitScheme::kSmallWang,
     [](const Matrix& m) { return m.residual ? 2 / (3 * std::sqrt(96.0)) : std::sqrt(0.4 / 96); }},
    {"fan_in", InitScheme::kFanIn, [](const Matrix& m) { return std::pow(m.in, -0.5); }},
    {"mitchell", InitScheme::kMitchell,
     [](const Matrix& m) { return std::pow(m.in, -0.5) / (m.residual ? std::sqrt(2 * m.layer + 2) : 1); }},
    {"t5", InitScheme::kT5,
     [](const Matrix& m) { return std::pow(m.in, -0.5) * (m.queries ? std::pow(40.0, -0.5) : 1); }},
    {"xavier", InitScheme::kXavier, [](const Matrix& m) { return std::sqrt(2 / (m.in + m.out)); }},
    {"kaiming", InitScheme::kKaiming, [](const Matrix& m) { return std::sqrt(2 / m.in); }},
};

TEST(Init, EverySchemeGivesEachMatrixItsDeviation) {
  EXPECT_EQ(std::size(kSchemes), names_of(model::InitScheme{}).size()) << "every scheme";
  for (const Scheme& scheme : kSchemes) {
    for (const double residual_scale : {1.0, 0.25}) {
      SCOPED_TRACE(str_cat(scheme.name, " ", residual_scale));
      ModelConfig c = config_with(scheme.scheme);
      EXPECT_EQ(name_of(scheme.scheme), scheme.name);
      c.init.residual_scale = residual_scale;
      const TinyModel m(c, DType::kFloat32, 1, 4);
      for (const Matrix& matrix : matrices()) {
        const double scale = matrix.residual ? residual_scale : 1;
        expect_deviation(m.values(matrix.name), scale * scheme.deviation(matrix), matrix.name);
      }
      expect_deviation(m.values("embed.tokens.weight"), 0.05, "embed.tokens.weight");
    }
  }
}

TEST(Init, ACutLeavesTheDeviationBeforeIt) {
  ModelConfig c = config_with(InitScheme::kFanIn);
  c.pos = {.type = model::PosType::kLearned, .max_positions = 64};
  c.rope.dims = 0;
  c.init.trunc_sigma = 1.5;
  const TinyModel m(c, DType::kFloat32, 1, 4);
  // Of a normal distribution under |x| <= c: 1 - 2 c phi(c) / (2 Phi(c) - 1).
  const double density = std::exp(-1.125) / std::sqrt(2 * std::numbers::pi);
  const double left = std::sqrt(1 - 3 * density / std::erf(1.5 / std::sqrt(2.0)));
  int64_t cut = 0;
  for (const auto& ref : m.store().sharded_tensors()) {
    if (ref.tensor->init.kind != nn::InitRule::Kind::kNormal) continue;
    const std::string& name = ref.tensor->name;
    const double std = ref.tensor->init.value;
    const std::vector<double> values = m.values(name);
    for (const double v : values) ASSERT_LE(std::abs(v), 1.5 * std * (1 + 1e-7)) << name;
    expect_deviation(values, left * std, name);
    EXPECT_THAT(ref.tensor->init.rule, ::testing::HasSubstr("truncated at 1.5 sigma"));
    ++cut;
  }
  EXPECT_EQ(cut, 2 + 7 * kLayers + 1) << "tables, matrices and the head";
}

// Queries of T5 by the width of a head in their layer, not of the model's.
TEST(Init, QueriesOfFullLayersHaveTheWidthOfTheirHeads) {
  ModelConfig c = config_with(InitScheme::kT5);
  c.attn.window_cycle = {4, -1};
  c.attn.global_head_dim = 10;
  nn::ParameterStore store;
  comm::SelfComm alone("tensor");
  const model::Stage stage(store, c, model::StageRange::whole(c), {.group = &alone});
  std::map<std::string, std::string> rules;
  for (const auto& parameter : store.parameters())
    for (const nn::ShardedTensor& tensor : parameter->tensors) rules[tensor.name] = tensor.init.rule;
  EXPECT_EQ(rules["blocks.0.attn.q.weight"], "t5 1/sqrt(96*40)");
  EXPECT_EQ(rules["blocks.1.attn.q.weight"], "t5 1/sqrt(96*10)");
}

TEST(Init, RulesSayTheFormulaWithItsNumbers) {
  const auto rule = [](InitScheme scheme, const model::MatrixPlace& place, double scale = 1) {
    ModelConfig c = config_with(scheme);
    c.init.residual_scale = scale;
    return model::matrix_init(c, place).rule;
  };
  EXPECT_EQ(rule(InitScheme::kSmallWang, {.out = 7, .in = kC}), "small sqrt(2/(5*96))");
  EXPECT_EQ(rule(InitScheme::kSmallWang, {.out = kC, .in = 7, .residual_of_layer = 1}), "wang 2/(3 sqrt(96))");
  EXPECT_EQ(rule(InitScheme::kFanIn, {.out = 7, .in = 11}), "fan_in 1/sqrt(11)");
  EXPECT_EQ(rule(InitScheme::kFanIn, {.out = 7, .in = 11, .residual_of_layer = 0}, 0.5),
            "fan_in 1/sqrt(11) x 0.5 (residual output)");
  EXPECT_EQ(rule(InitScheme::kMitchell, {.out = 7, .in = 11, .residual_of_layer = 2}), "mitchell 1/sqrt(2*11*3)");
  EXPECT_EQ(rule(InitScheme::kT5, {.out = 7, .in = kC, .query_head_dim = 40}), "t5 1/sqrt(96*40)");
  EXPECT_EQ(rule(InitScheme::kGpt2, {.out = 7, .in = 11, .residual_of_layer = 2}, 0.5),
            "gpt2 0.05 x 0.5 (residual output)");
}

/// Published figures: what a scheme gives for the sizes of the model that made it known.
TEST(Init, PublishedModels) {
  const auto std_of = [](InitScheme scheme, int64_t d, int64_t layers, int64_t head_dim, const model::MatrixPlace& at) {
    ModelConfig c;
    c.d_model = d;
    c.n_layers = layers;
    c.head_dim = head_dim;
    c.init.scheme = scheme;
    return model::matrix_init(c, at).value;
  };
  // GPT-NeoX-20B: 44 layers of 6144.
  EXPECT_NEAR(std_of(InitScheme::kSmallWang, 6144, 44, 96, {.out = 6144, .in = 6144}), 0.0080687, 1e-7);
  EXPECT_NEAR(std_of(InitScheme::kSmallWang, 6144, 44, 96, {.out = 6144, .in = 24576, .residual_of_layer = 43}),
              0.00057990, 1e-8);
  // PaLM 540B: 18432 inputs.
  EXPECT_NEAR(std_of(InitScheme::kFanIn, 18432, 118, 256, {.out = 12288, .in = 18432}), 0.0073657, 1e-7);
  // OLMo 7B: 4096 wide, FFN 11008, the last of 32 layers.
  EXPECT_NEAR(std_of(InitScheme::kMitchell, 4096, 32, 128, {.out = 4096, .in = 4096, .residual_of_layer = 31}),
              0.001953125, 1e-12);
  EXPECT_NEAR(std_of(InitScheme::kMitchell, 4096, 32, 128, {.out = 4096, .in = 11008, .residual_of_layer = 0}),
              0.0067396, 1e-7);
  // T5 11B: 1024 wide, 128 heads of 128, FFN 65536.
  EXPECT_NEAR(std_of(InitScheme::kT5, 1024, 24, 128, {.out = 16384, .in = 1024, .query_head_dim = 128}), 0.0027621,
              1e-7);
  EXPECT_NEAR(std_of(InitScheme::kT5, 1024, 24, 128, {.out = 1024, .in = 16384, .residual_of_layer = 5}), 0.0078125,
              1e-12);
  EXPECT_NEAR(std_of(InitScheme::kT5, 1024, 24, 128, {.out = 1024, .in = 65536, .residual_of_layer = 5}), 0.00390625,
              1e-12);
}

}  // namespace
}  // namespace ashlar
