// Counts and rules against published figures, none of which come from this program.

#include "parallel/model/model_config.h"
#include "parallel/model/attention_options.h"
#include "parallel/model/flops.h"
#include "parallel/model/logits.h"
#include "parallel/model/model_constraints.h"
#include "parallel/model/parameter_count.h"
#include "parallel/model/position_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace ashlar::model {
namespace {

struct Published {
  const char* name;
  int64_t d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff, vocab;
  NormType norm;
  NormAffine affine;
  int norms;                 // a block; 0 = serial
  std::array<bool, 4> bias;  // qkv, attention output, FFN, head
  bool gated;
  int64_t learned_positions;
  bool tied;
  int64_t parameters;
};

constexpr auto kLN = NormType::kLayerNorm;
constexpr auto kRMS = NormType::kRmsNorm;
constexpr auto kNone = NormAffine::kNone;
constexpr auto kScale = NormAffine::kScale;
constexpr auto kBoth = NormAffine::kScaleBias;

// Parameter counts as published with each model, or counted from its released files.
constexpr Published kPublished[] = {
    {"GPT-2", 768, 12, 12, 12, 64, 3072, 50257, kLN, kBoth, 0, {1, 1, 1, 0}, false, 1024, true, 124439808},
    {"GPT-2 XL", 1600, 48, 25, 25, 64, 6400, 50257, kLN, kBoth, 0, {1, 1, 1, 0}, false, 1024, true, 1557611200},
    {"GPT-3", 12288, 96, 96, 96, 128, 49152, 50257, kLN, kBoth, 0, {1, 1, 1, 0}, false, 2048, true, 174604259328},
    {"GPT-J", 4096, 28, 16, 16, 256, 16384, 50400, kLN, kBoth, 1, {0, 0, 1, 1}, false, 0, false, 6050882784},
    {"GPT-NeoX-20B", 6144, 44, 64, 64, 96, 24576, 50432, kLN, kBoth, 2, {1, 1, 1, 0}, false, 0, false, 20554567680},
    {"PaLM 540B", 18432, 118, 48, 1, 256, 73728, 256000, kLN, kScale, 1, {0, 0, 0, 0}, true, 0, true, 540356474880},
    {"LLaMA 7B", 4096, 32, 32, 32, 128, 11008, 32000, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 6738415616},
    {"LLaMA 65B", 8192, 80, 64, 64, 128, 22016, 32000, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 65285660672},
    {"LLaMA 2 70B", 8192, 80, 64, 8, 128, 28672, 32000, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 68976648192},
    {"LLaMA 3 8B", 4096, 32, 32, 8, 128, 14336, 128256, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 8030261248},
    {"LLaMA 3 70B", 8192, 80, 64, 8, 128, 28672, 128256, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 70553706496},
    {"Mistral 7B", 4096, 32, 32, 8, 128, 14336, 32000, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 7241732096},
    {"Falcon 7B", 4544, 32, 71, 1, 64, 18176, 65024, kLN, kBoth, 1, {0, 0, 0, 0}, false, 0, true, 6921720704},
    {"Falcon 40B", 8192, 60, 128, 8, 64, 32768, 65024, kLN, kBoth, 2, {0, 0, 0, 0}, false, 0, true, 41303293952},
    {"OLMo 1B", 2048, 16, 16, 16, 128, 8192, 50304, kLN, kNone, 0, {0, 0, 0, 0}, true, 0, true, 1176764416},
    {"OLMo 7B", 4096, 32, 32, 32, 128, 11008, 50304, kLN, kNone, 0, {0, 0, 0, 0}, true, 0, false, 6888095744},
    {"Qwen 14B", 5120, 40, 40, 40, 128, 13696, 152064, kRMS, kScale, 0, {1, 0, 0, 0}, true, 0, false, 14167290880},
    {"Qwen 2 72B", 8192, 80, 64, 8, 128, 29568, 152064, kRMS, kScale, 0, {1, 0, 0, 0}, true, 0, false, 72706203648},
    {"Phi-3-mini", 3072, 32, 32, 32, 96, 8192, 32064, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 3821079552},
    {"Phi-4", 5120, 40, 40, 10, 128, 17920, 100352, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 14659507200},
    {"Command A", 12288, 64, 96, 8, 128, 36864, 256000, kLN, kScale, 1, {0, 0, 0, 0}, true, 0, true, 111057580032},
    {"DeepSeek 67B", 8192, 95, 64, 8, 128, 22016, 102400, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 67425001472},
    {"Yi 34B", 7168, 60, 56, 8, 128, 20480, 64000, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, false, 34388917248},
    {"SmolLM2", 2048, 24, 32, 32, 64, 8192, 49152, kRMS, kScale, 0, {0, 0, 0, 0}, true, 0, true, 1711376384},
};

ModelConfig config_of(const Published& p) {
  ModelConfig c{.d_model = p.d_model,
                .n_layers = p.n_layers,
                .n_heads = p.n_heads,
                .n_kv_heads = p.n_kv_heads,
                .head_dim = p.head_dim,
                .d_ff = p.d_ff,
                .vocab_size = p.vocab};
  c.norm.variant.type = p.norm;
  c.norm.affine = p.affine;
  if (p.norms > 0) c.block = {.topology = Topology::kParallel, .parallel_norms = p.norms};
  c.bias = {.qkv = p.bias[0], .attn_out = p.bias[1], .ffn = p.bias[2], .lm_head = p.bias[3]};
  c.ffn.gated = p.gated;
  if (p.learned_positions > 0)
    c.pos = {.type = PosType::kLearned, .max_positions = p.learned_positions};
  else
    c.rope.dims = p.head_dim;
  c.attn.scale = 0.125;
  c.tied = p.tied;
  return c;
}

TEST(ParameterCount, PublishedModels) {
  for (const Published& p : kPublished) {
    const ModelConfig c = config_of(p);
    EXPECT_EQ(count_parameters(c).total(), p.parameters) << p.name;
    EXPECT_TRUE(constraint_errors(c).empty()) << p.name << ": " << constraint_errors(c)[0];
  }
}

TEST(ParameterCount, NormsOfBranchesAndOfQueriesAndKeys) {
  struct Row {
    Published model;
    NormPlacement placement;
    QkNorm qk_norm;
  };
  const Row rows[] = {
      {{"Qwen 3 0.6B", 1024, 28, 16, 8, 128, 3072, 151936, kRMS, kScale, 0, {}, true, 0, true, 596049920},
       NormPlacement::kPre,
       QkNorm::kHead},
      {{"OLMo 2 7B", 4096, 32, 32, 32, 128, 11008, 100352, kRMS, kScale, 0, {}, true, 0, false, 7298617344},
       NormPlacement::kOutput,
       QkNorm::kFull},
      {{"Gemma 2 9B", 3584, 42, 16, 8, 256, 14336, 256000, kRMS, kScale, 0, {}, true, 0, true, 9241705984},
       NormPlacement::kSandwich,
       QkNorm::kNone},
      {{"Command R+", 12288, 64, 96, 8, 128, 33792, 256000, kLN, kScale, 1, {}, true, 0, true, 103810674688},
       NormPlacement::kPre,
       QkNorm::kHeadPer}};
  for (const Row& row : rows) {
    ModelConfig c = config_of(row.model);
    c.norm.placement = row.placement;
    c.qk_norm.kind = row.qk_norm;
    EXPECT_EQ(count_parameters(c).total(), row.model.parameters) << row.model.name;
  }
}

TEST(ParameterCount, Gpt2ByComponent) {
  const ParameterCount n = count_parameters(config_of(kPublished[0]));
  EXPECT_EQ(n.embedding, 38597376);
  EXPECT_EQ(n.positions, 786432);
  EXPECT_EQ(n.attention, 7077888 + 14155776 + 7077888);
  EXPECT_EQ(n.ffn, 56623104);
  EXPECT_EQ(n.biases, 82944);
  EXPECT_EQ(n.norms, 36864 + 1536);
  EXPECT_EQ(n.head, 0);
  EXPECT_EQ(n.head_bias, 0);
}

TEST(ParameterCount, PaddingAddsRows) {
  ModelConfig c = config_of(kPublished[0]);
  c.vocab_pad_to = 128;
  EXPECT_EQ(c.vocab_padded(), 50304);
  EXPECT_EQ(count_parameters(c).total(), 124439808 + 47 * 768);
  c.vocab_size = 50304;
  EXPECT_EQ(c.vocab_padded(), 50304);
}

// OPT-350M as published: tables half as wide as the stream, two rows of positions before the first.
TEST(ParameterCount, ProjectionsAndOffsetRows) {
  ModelConfig c = config_of(kPublished[0]);
  c.d_model = 1024;
  c.n_layers = 24;
  c.n_heads = c.n_kv_heads = 16;
  c.head_dim = 64;
  c.d_ff = 4096;
  c.vocab_size = 50272;
  c.embed_dim = 512;
  c.pos = {PosType::kLearned, 2048, 2};
  c.norm.final = false;
  EXPECT_EQ(count_parameters(c).total(), 331196416);
  EXPECT_EQ(count_parameters(c).projections, 2 * 512 * 1024);
  // The head's product is with the narrow rows; both projections are products too.
  EXPECT_EQ(matmul_parameters(c), 24 * 12 * 1024 * 1024 + 50272 * 512 + 2 * 512 * 1024);
}

/// Gemma 4 31B as published: every sixth layer has full attention, fewer and wider KV heads, and no value matrix.
ModelConfig gemma4_31b() {
  ModelConfig c{.d_model = 5376,
                .n_layers = 60,
                .n_heads = 32,
                .n_kv_heads = 16,
                .head_dim = 256,
                .d_ff = 21504,
                .vocab_size = 262144,
                .tied = true};
  c.norm.placement = NormPlacement::kSandwich;
  c.block.out_scalar = true;
  c.qk_norm.kind = QkNorm::kHead;
  c.attn.window_cycle = {1024, 1024, 1024, 1024, 1024, -1};
  c.attn.global_head_dim = 512;
  c.attn.global_n_kv_heads = 4;
  c.attn.k_eq_v = c.attn.v_norm = true;
  c.attn.scale = 1;
  c.rope = {.base = 1e6,
            .dims = 256,
            .global_dims = 128,
            .local_base = 1e4,
            .scaling = RopeScaling::kProportional,
            .scaled_layers = ScaledLayers::kFull};
  return c;
}

TEST(ParameterCount, LayersOfTwoKinds) {
  const ModelConfig c = gemma4_31b();
  EXPECT_TRUE(constraint_errors(c).empty()) << ::testing::PrintToString(constraint_errors(c));
  const ParameterCount n = count_parameters(c);
  EXPECT_EQ(n.total(), 30697345340);
  EXPECT_EQ(n.attention, int64_t{5376} * (50 * (2 * 8192 + 2 * 4096) + 10 * (2 * 16384 + 2048)));
  EXPECT_EQ(n.norms, (4 * 60 + 1) * 5376 + 50 * 2 * 256 + 10 * 2 * 512 + 60);
}

TEST(Flops, OfLayersOfTwoKinds) {
  const ModelConfig c = gemma4_31b();
  const std::vector<double> products = matmul_flops_of_layers(c), attention = attention_flops_of_layers(c, 512);
  ASSERT_EQ(products.size(), 60U);
  EXPECT_EQ(products[0], 6.0 * 5376 * (2 * 8192 + 2 * 4096 + 3 * 21504));
  EXPECT_EQ(products[5], 6.0 * 5376 * (2 * 16384 + 2048 + 3 * 21504));
  EXPECT_EQ(attention[0], 12.0 * 8192 * 256);  // below the window
  EXPECT_EQ(attention[5], 12.0 * 16384 * 256);
  double sum = 6.0 * 262144 * 5376;
  for (const double layer : products) sum += layer;
  EXPECT_DOUBLE_EQ(flops_per_token(c, 512).matmul, sum);
}

TEST(LayerHeads, AreThoseOfTheKind) {
  ModelConfig c = gemma4_31b();
  EXPECT_EQ(layer_heads(c, 4), (LayerHeads{.n_kv_heads = 16, .head_dim = 256, .v_head_dim = 256}));
  EXPECT_EQ(layer_heads(c, 5), (LayerHeads{.n_kv_heads = 4, .head_dim = 512, .v_head_dim = 512, .values = false}));
  EXPECT_EQ(global_rope_dims(c), 128);
  c.rope.global_dims.reset();
  EXPECT_EQ(global_rope_dims(c), 512);  // whole heads, as the others
  c.rope.dims = 64;
  EXPECT_EQ(global_rope_dims(c), 128);
}

TEST(FinishLogits, FactorThenCapThenMasks) {
  ModelConfig c;
  c.logit_scale = 2;
  c.softcap = 3;
  c.masked_ids = {1};
  std::vector<double> row = {0.5, 100, -4};
  finish_logits(c, row);
  EXPECT_DOUBLE_EQ(row[0], 3 * std::tanh(1.0 / 3));
  EXPECT_EQ(row[1], -std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(row[2], 3 * std::tanh(-8.0 / 3));
}

TEST(Flops, CountsMatricesOnce) {
  ModelConfig c = config_of(kPublished[0]);
  // 12 layers of 12 d^2 and the head, tied or not; the lookups and the position table do no arithmetic.
  const int64_t n = 12 * 12 * 768 * 768 + 50257 * 768;
  EXPECT_EQ(matmul_parameters(c), n);
  c.tied = false;
  EXPECT_EQ(matmul_parameters(c), n);
  c.bias.lm_head = true;
  EXPECT_EQ(matmul_parameters(c), n);
  const FlopsPerToken f = flops_per_token(c, 1024);
  EXPECT_EQ(f.matmul, 6.0 * static_cast<double>(n));
  EXPECT_EQ(f.attention_full, 12.0 * 12 * 768 * 1024);
  EXPECT_EQ(f.attention_causal, 6.0 * 12 * 768 * 1024);
  EXPECT_EQ(f.total_full(), f.matmul + f.attention_full);
  EXPECT_EQ(f.total_causal(), f.matmul + f.attention_causal);
}

// Against a count of the keys that each query sees; a triangle of T counts T/2 a token, not (T + 1)/2.
TEST(Flops, AWindowCountsItsBand) {
  ModelConfig c = config_of(kPublished[0]);
  constexpr int64_t T = 1000;
  const auto seen = [&](int64_t window, bool chunked) {
    double pairs = 0;
    for (int64_t i = 0; i < T; ++i) {
      for (int64_t j = 0; j <= i; ++j) pairs += chunked ? i / window == j / window : i - j < window;
    }
    return pairs / T;
  };
  for (const bool chunked : {false, true}) {
    c.attn.window_kind = chunked ? WindowKind::kChunked : WindowKind::kSliding;
    for (const int64_t window : {7, 64, 300, 999, 1000, 5000}) {
      c.attn.window_cycle = {window, -1};
      const FlopsPerToken f = flops_per_token(c, T);
      const double counted = 12.0 * 768 * 6 * (seen(window, chunked) + 0.5 * T);
      EXPECT_NEAR(f.attention_causal, counted, 12.0 * 768 * 6 * 0.51) << window;
      EXPECT_GE(f.attention_full, f.attention_causal);
      const std::vector<double> layers = attention_flops_of_layers(c, T);
      EXPECT_EQ(layers[0] < layers[1], window < T) << window;
    }
  }
}

// Llama 2 70B at 4,096 tokens in bf16: 10.74 GB with as many KV heads as heads, 1.34 with 8, 0.168 with one.
TEST(KvElements, AreThoseOfTheKvHeads) {
  ModelConfig c = config_of(kPublished[0]);
  c.n_layers = 80;
  c.n_heads = 64;
  c.head_dim = 128;
  for (const auto& [kv_heads, bytes] :
       {std::pair<int64_t, int64_t>{64, 10'737'418'240}, {8, 1'342'177'280}, {1, 167'772'160}}) {
    c.n_kv_heads = kv_heads;
    EXPECT_EQ(2 * kv_elements(c, 4096).all, bytes);
    EXPECT_EQ(2 * kv_elements(c, 4096).seen, bytes);
  }
}

TEST(KvElements, OfAWindowItsTokensCanBeSeen) {
  ModelConfig c = config_of(kPublished[0]);
  c.n_layers = 3;
  c.attn.window_cycle = {100, -1};
  const int64_t a_token = 2 * 12 * 64;
  EXPECT_EQ(kv_elements(c, 1000).all, 3 * 1000 * a_token);
  EXPECT_EQ(kv_elements(c, 1000).seen, (1000 + 2 * 100) * a_token);
  EXPECT_EQ(kv_elements(c, 50).seen, 3 * 50 * a_token);
  // Values of another width, and heads of their own in the layer with full attention.
  c.attn.v_head_dim = 32;
  c.attn.global_n_kv_heads = 2;
  EXPECT_EQ(kv_elements(c, 10).all, 10 * (2 * 12 + 2) * (64 + 32));
}

TEST(Windows, RepeatOverTheLayers) {
  ModelConfig c = config_of(kPublished[0]);
  c.n_layers = 5;
  c.attn.window_cycle = {4, 4, -1};
  EXPECT_EQ(layer_windows(c), (std::vector<int64_t>{4, 4, -1, 4, 4}));
  EXPECT_EQ(attention_mask(c, 2).window, -1);
  EXPECT_EQ(attention_mask(c, 3).window, 4);
  c.attn.last_layer_full = true;
  EXPECT_EQ(layer_windows(c), (std::vector<int64_t>{4, 4, -1, 4, -1}));
  EXPECT_EQ(shortest_cycle(layer_windows(c)), layer_windows(c));
  EXPECT_EQ(shortest_cycle<int64_t>({4, -1, 4}), (std::vector<int64_t>{4, -1}));
  EXPECT_EQ(shortest_cycle<int64_t>({7, 7, 7}), (std::vector<int64_t>{7}));
  c.attn.window_kind = WindowKind::kChunked;
  EXPECT_EQ(attention_mask(c, 0).window, -1);
  EXPECT_EQ(attention_mask(c, 0).chunk, 4);
}

// 8 heads have 1/2 to 1/256. Other numbers by the two rules of published code, which give the same list: BLOOM's (the
// power of two below, then every second of the one above) and MPT's (of the power of two above, all even, then odd).
TEST(Alibi, SlopesByTheirRules) {
  ModelConfig c = config_of(kPublished[0]);
  EXPECT_TRUE(alibi_slopes(c).empty());
  c.pos = {.type = PosType::kAlibi};
  c.n_heads = 8;
  std::vector<double> eight;
  for (int k = 1; k <= 8; ++k) eight.push_back(std::pow(0.5, k));
  EXPECT_EQ(alibi_slopes(c), eight);
  c.n_heads = 5;
  EXPECT_EQ(alibi_slopes(c), (std::vector<double>{1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2}));
  c.n_heads = 12;
  const std::vector<int> halves = {2, 4, 6, 8, 10, 12, 14, 16, 1, 3, 5, 7};  // exponents of 1/2
  for (size_t h = 0; h < 12; ++h) EXPECT_DOUBLE_EQ(alibi_slopes(c)[h], std::pow(0.5, 0.5 * halves[h])) << h;
  c.pos.alibi_scale = 0.125;
  for (size_t h = 0; h < 12; ++h) EXPECT_DOUBLE_EQ(alibi_slopes(c)[h], 0.125 * std::pow(0.5, 0.5 * halves[h])) << h;
  for (const int H : {3, 6, 7, 40, 112}) {
    c.n_heads = H;
    c.pos.alibi_scale = 1;
    int above = 1;
    while (above < H) above *= 2;
    std::vector<int> of_mpt;
    for (int k = 2; k <= above; k += 2) of_mpt.push_back(k);
    for (int k = 1; k <= above; k += 2) of_mpt.push_back(k);
    const std::vector<double> got = alibi_slopes(c);
    ASSERT_EQ(std::ssize(got), H);
    for (size_t h = 0; h < got.size(); ++h)
      EXPECT_DOUBLE_EQ(got[h], std::exp2(-8.0 * of_mpt[h] / above)) << H << " " << h;
  }
}

TEST(Temperature, GrowsWithWholeTurns) {
  ModelConfig c = config_of(kPublished[0]);
  EXPECT_TRUE(query_temperatures(c, 9).empty());
  c.attn.temperature_beta = 0.1;
  c.attn.temperature_positions = 4;
  const std::vector<double> factors = query_temperatures(c, 9);
  for (const int64_t t : {0, 3}) EXPECT_EQ(factors[t], 1.0);
  for (const int64_t t : {4, 7}) EXPECT_DOUBLE_EQ(factors[t], 1 + 0.1 * std::log(2.0));
  EXPECT_DOUBLE_EQ(factors[8], 1 + 0.1 * std::log(3.0));
  c.attn.temperature_offset = 1;
  const std::vector<double> shifted = query_temperatures(c, 9);
  for (const int64_t t : {0, 2, 3, 7}) EXPECT_EQ(shifted[t], factors[t + 1]);
}

TEST(DerivedWidth, PublishedWidths) {
  EXPECT_EQ(derived_d_ff(4096, true), 11008);
  EXPECT_EQ(derived_d_ff(5120, true), 13824);
  EXPECT_EQ(derived_d_ff(8192, true), 22016);
  EXPECT_EQ(derived_d_ff(96, true), 256);  // exactly 256
  EXPECT_EQ(derived_d_ff(97, true), 512);  // just above
  EXPECT_EQ(derived_d_ff(48, true, 1), 128);
  EXPECT_EQ(derived_d_ff(49, true, 1), 131);  // 130.67
  EXPECT_EQ(derived_d_ff(768, false), 3072);
}

TEST(DerivedWidth, RotatedDims) {
  EXPECT_EQ(rope_dims_of(256, 0.25), 64);
  EXPECT_EQ(rope_dims_of(80, 0.4), 32);
  EXPECT_EQ(rope_dims_of(12, 0.5), 6);
  EXPECT_EQ(rope_dims_of(12, 0.6), 7);
  EXPECT_EQ(rope_dims_of(64, 1.0), 64);
}

TEST(Constraints, EachIsNamed) {
  const ModelConfig good = config_of(kPublished[6]);
  const auto expect = [&](const char* key, const auto& spoil) {
    ModelConfig c = good;
    spoil(c);
    const auto errors = constraint_errors(c);
    ASSERT_EQ(errors.size(), 1U) << key << ::testing::PrintToString(errors);
    EXPECT_EQ(errors[0].rfind(std::string(key) + " = ", 0), 0U) << errors[0];
  };
  expect("model.d_model", [](ModelConfig& c) { c.d_model = 0; });
  expect("model.n_layers", [](ModelConfig& c) { c.n_layers = 0; });
  expect("model.d_ff", [](ModelConfig& c) { c.d_ff = -1; });
  expect("vocab.size", [](ModelConfig& c) { c.vocab_size = 0; });
  expect("model.n_kv_heads", [](ModelConfig& c) { c.n_kv_heads = 5; });
  expect("model.head_dim", [](ModelConfig& c) { c.head_dim = 513; });
  expect("attn.softcap", [](ModelConfig& c) { c.attn.softcap = -1; });
  expect("attn.clip_qkv", [](ModelConfig& c) { c.attn.clip_qkv = 0; });
  expect("attn.window_cycle", [](ModelConfig& c) { c.attn.window_cycle = {16, 0}; });
  expect("attn.window_cycle", [](ModelConfig& c) { c.attn.window_cycle = {}; });
  expect("pos.t5_num_buckets", [](ModelConfig& c) {
    c.pos = {.type = PosType::kT5Bias, .t5_num_buckets = 1};
    c.rope.dims = 0;
  });
  expect("pos.t5_max_distance", [](ModelConfig& c) {
    c.pos = {.type = PosType::kT5Bias, .t5_num_buckets = 32, .t5_max_distance = 16};
    c.rope.dims = 0;
  });
  expect("pos.alibi_scale", [](ModelConfig& c) { c.pos.alibi_scale = 0; });
  expect("attn.temperature_positions", [](ModelConfig& c) { c.attn.temperature_positions = -1; });
  expect("attn.temperature_offset", [](ModelConfig& c) { c.attn.temperature_offset = -1; });
  expect("attn.temperature_positions", [](ModelConfig& c) { c.attn.temperature_positions = 16; });
  expect("attn.temperature_beta", [](ModelConfig& c) { c.attn.temperature_beta = 0.1; });
  expect("attn.temperature_positions", [](ModelConfig& c) {
    c.attn.temperature_beta = 0.1;
    c.attn.temperature_positions = 16;
    c.rope.dims = c.head_dim / 2;  // its tables cannot hold a factor for the columns that do not rotate
  });
  expect("rope.local_base", [](ModelConfig& c) { c.rope.local_base = 0; });
  expect("rope.local_base", [](ModelConfig& c) {
    c.rope.local_base = 1e4;
    c.rope.base_cycle = {1e4, 0};
  });
  expect("rope.global_enabled", [](ModelConfig& c) {
    c.rope.global_enabled = false;
    c.rope.base_cycle = {1e4, 0};
  });
  expect("rope.global_dims", [](ModelConfig& c) { c.rope.global_dims = c.head_dim + 2; });
  expect("rope.global_dims", [](ModelConfig& c) { c.rope.global_dims = 5; });
  expect("rope.global_dims", [](ModelConfig& c) {
    c.attn.global_head_dim = 51;  // the same share of these heads is an odd number
  });
  expect("rope.global_dims", [](ModelConfig& c) {
    c.rope.scaling = RopeScaling::kLongrope;
    c.rope.factor = 2;
    c.rope.original_positions = 64;
    c.rope.short_factor = c.rope.long_factor = std::vector<double>(static_cast<size_t>(c.rope.dims / 2), 1.0);
    c.rope.global_dims = 2;
  });
  expect("attn.temperature_positions", [](ModelConfig& c) {
    c.attn.temperature_beta = 0.1;
    c.attn.temperature_positions = 16;
    c.rope.global_dims = c.head_dim / 2;
  });
  expect("attn.global_head_dim", [](ModelConfig& c) {
    c.attn.global_head_dim = 513;
    c.rope.global_dims = 2;
  });
  expect("attn.global_n_kv_heads", [](ModelConfig& c) { c.attn.global_n_kv_heads = 5; });
  expect("attn.k_eq_v", [](ModelConfig& c) {
    c.attn.k_eq_v = true;
    c.attn.v_head_dim = c.head_dim / 2;
  });
  expect("norm.eps", [](ModelConfig& c) { c.norm.variant.eps = 0; });
  expect("norm.unit_offset",
         [](ModelConfig& c) { c.norm = {.variant = {.unit_offset = true}, .affine = NormAffine::kNone}; });
  expect("embed.scale", [](ModelConfig& c) { c.embed_scale = 0; });
  expect("head.logit_scale", [](ModelConfig& c) { c.logit_scale = 0; });
  expect("ffn.clamp", [](ModelConfig& c) { c.ffn.clamp = 0; });
  expect("ffn.clamp", [](ModelConfig& c) { c.ffn = {Activation::kSilu, false, 20.0}; });
  expect("ffn.linear_offset", [](ModelConfig& c) { c.ffn = {Activation::kSilu, false, std::nullopt, 1.0}; });
  expect("model.embed_dim", [](ModelConfig& c) { c.embed_dim = 0; });
  expect("pos.learned_offset", [](ModelConfig& c) { c.pos = {PosType::kLearned, 8, -1}; });
  expect("pos.learned_offset", [](ModelConfig& c) {
    c.pos = {PosType::kNone, 0, 2};
    c.rope.dims = 0;
  });
  expect("head.softcap", [](ModelConfig& c) { c.softcap = -1; });
  expect("head.masked_ids", [](ModelConfig& c) { c.masked_ids = {3, 3}; });
  expect("head.masked_ids", [](ModelConfig& c) { c.masked_ids = {c.vocab_size}; });
  expect("head.masked_ids", [](ModelConfig& c) {
    c.vocab_size = 2;
    c.masked_ids = {0, 1};
  });
  expect("block.parallel_norms", [](ModelConfig& c) { c.block.parallel_norms = 2; });
  expect("pos.max_positions", [](ModelConfig& c) { c.pos.type = PosType::kLearned; });
  expect("rope.dims", [](ModelConfig& c) { c.rope.dims = 31; });
  expect("rope.dims", [](ModelConfig& c) { c.rope.dims = 130; });
  expect("rope.base", [](ModelConfig& c) { c.rope.base = 0; });
  expect("dropout.attn", [](ModelConfig& c) { c.dropout.attn = 1; });
  expect("attn.scale", [](ModelConfig& c) { c.attn.scale = 0; });
  expect("loss.z_coef", [](ModelConfig& c) { c.loss.z_coef = -1; });
  expect("init.std", [](ModelConfig& c) { c.init.std = 0; });
  expect("init.residual_scale", [](ModelConfig& c) { c.init.residual_scale = 0; });
  expect("init.trunc_sigma", [](ModelConfig& c) { c.init.trunc_sigma = 0.4; });
}

}  // namespace
}  // namespace ashlar::model
