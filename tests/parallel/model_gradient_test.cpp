// Every model axis against finite differences in fp64, and its recomputed and deferred forms against the plain one.
#include <gtest/gtest.h>

#include "tests/parallel/model_fixture.h"
#include "tests/support/grad_check.h"
#include "tests/support/sanitizers.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::RopeScaling;
using testing::tiny_config;
using testing::TinyModel;

struct ModelAxis {
  const char* name;
  std::function<void(ModelConfig&)> apply;
};
std::ostream& operator<<(std::ostream& out, const ModelAxis& axis) { return out << axis.name; }

void make_latent(ModelConfig& c) {
  c.attn.kind = model::AttentionKind::kMla;
  c.attn.q_rank = 5;
  c.attn.kv_rank = 6;
  c.attn.latent_eps = 1e-3;
  c.attn.v_head_dim = 3;
  c.head_dim = 7;
  c.rope.dims = 2;
}

/// Experts without terms of the loss that TinyModel::loss leaves out.
model::MoeConfig experts(int64_t number, int64_t top_k) {
  return {.experts = number, .top_k = top_k, .d_ff = 6, .balance = model::Balance::kNone};
}

const ModelAxis kAxes[] = {
    {"Default", [](ModelConfig&) {}},
    {"LayerNormAllBiases",
     [](ModelConfig& c) {
       c.norm.variant.type = NormType::kLayerNorm;
       c.norm.affine = model::NormAffine::kScaleBias;
       c.bias = {true, true, true, true};
       c.ffn = {Activation::kGeluTanh, false};
       c.pos = {model::PosType::kLearned, 16};
       c.tied = true;
     }},
    {"NormWithoutGain", [](ModelConfig& c) { c.norm.affine = model::NormAffine::kNone; }},
    {"LayerNormWithoutGain",
     [](ModelConfig& c) {
       c.norm.affine = model::NormAffine::kNone;
       c.norm.variant.type = NormType::kLayerNorm;
     }},
    {"GroupedQuery", [](ModelConfig& c) { c.n_kv_heads = 2; }},
    {"MultiQueryInterleaved",
     [](ModelConfig& c) {
       c.n_kv_heads = 1;
       c.rope.style = RopeStyle::kInterleaved;
       c.rope.dims = 2;
     }},
    {"ParallelOneNorm",
     [](ModelConfig& c) {
       c.block = {model::Topology::kParallel, 1};
     }},
    {"ParallelOneNormUngatedMixedBias",
     [](ModelConfig& c) {
       c.block = {model::Topology::kParallel, 1};
       c.ffn = {Activation::kGeluErf, false};
       c.bias = {false, false, true, true};
     }},
    {"ParallelTwoNorms",
     [](ModelConfig& c) {
       c.block = {model::Topology::kParallel, 2};
       c.ffn = {Activation::kGeluErf, true};
       c.n_kv_heads = 2;
     }},
    {"ParallelWithoutPositions",
     [](ModelConfig& c) {
       c.block = {model::Topology::kParallel, 1};
       c.pos.type = model::PosType::kNone;
       c.rope.dims = 0;
       c.tied = true;
     }},
    {"ReluGatedZLossPadded",
     [](ModelConfig& c) {
       c.ffn = {Activation::kRelu, true};
       c.loss.z_coef = 0.01;
       c.vocab_pad_to = 8;
     }},
    {"SiluUngatedNoFinalNorm",
     [](ModelConfig& c) {
       c.ffn = {Activation::kSilu, false};
       c.norm.final = false;
     }},
    {"Relu2Ungated",
     [](ModelConfig& c) {
       c.ffn = {Activation::kRelu2, false};
     }},
    {"QuickGeluLimited",
     [](ModelConfig& c) {
       c.ffn = {Activation::kQuickGelu, true, 0.03, 1.0};
     }},
    {"BilinearWithBias",
     [](ModelConfig& c) {
       c.ffn = {Activation::kIdentity, true};
       c.bias.ffn = true;
     }},
    {"SigmoidGateInParallelBlock",
     [](ModelConfig& c) {
       c.ffn = {Activation::kSigmoid, true, std::nullopt, -0.5};
       c.block = {model::Topology::kParallel, 1};
     }},
    {"NarrowTablesAndOffset",
     [](ModelConfig& c) {
       c.embed_dim = 7;
       c.pos = {model::PosType::kLearned, 16, 2};
       c.embed_scale = 2;
     }},
    {"WideTiedTablesSinusoidal",
     [](ModelConfig& c) {
       c.embed_dim = 15;
       c.pos = {model::PosType::kSinusoidal, 0, 2};
       c.rope.dims = 0;
       c.tied = true;
       c.norm.final = false;
     }},
    {"Sinusoidal",
     [](ModelConfig& c) {
       c.pos.type = model::PosType::kSinusoidal;
       c.rope.dims = 0;
     }},
    {"SoftcapOnLogits",
     [](ModelConfig& c) {
       c.softcap = 1.5;
       c.logit_scale = 0.7;
       c.loss.z_coef = 0.01;
     }},
    {"HeadRowsOfLengthOne",
     [](ModelConfig& c) {
       c.norm_rows = true;
       c.bias.lm_head = true;
       c.vocab_pad_to = 8;
     }},
    {"TiedHeadRowsOfLengthOne",
     [](ModelConfig& c) {
       c.norm_rows = true;
       c.tied = true;
     }},
    {"LargestLogitSquared",
     [](ModelConfig& c) {
       c.loss = {.z_coef = 0.05, .z_kind = ZKind::kMaxLogit};
       c.softcap = 3;
       c.logit_scale = 2;
     }},
    {"MaskedIds",
     [](ModelConfig& c) {
       c.masked_ids = {0, 5, 16};
     }},
    {"UnitOffsetAndScales",
     [](ModelConfig& c) {
       c.norm.variant.unit_offset = true;
       c.norm.affine = model::NormAffine::kScaleBias;
       c.pos = {model::PosType::kLearned, 16};
       c.embed_scale = 3;
       c.tied = true;
       c.logit_scale = 0.5;
     }},
    {"PostNormEmbedNorm",
     [](ModelConfig& c) {
       c.norm.placement = model::NormPlacement::kPost;
       c.norm.final = false;
       c.norm.embed = true;
       c.norm.affine = model::NormAffine::kScaleBias;
       c.pos = {model::PosType::kLearned, 16};
       c.dropout.resid = 0.25;
     }},
    {"SandwichWithMultiplier",
     [](ModelConfig& c) {
       c.norm.placement = model::NormPlacement::kSandwich;
       c.norm.variant.unit_offset = true;
       c.block.residual_multiplier = 0.6;
       c.dropout.resid = 0.25;
     }},
    {"OutputNormFullQkNorm",
     [](ModelConfig& c) {
       c.norm.placement = model::NormPlacement::kOutput;
       c.qk_norm.kind = model::QkNorm::kFull;
       c.n_kv_heads = 2;
     }},
    {"OutputNormWithoutGain",
     [](ModelConfig& c) {
       c.norm.placement = model::NormPlacement::kOutput;
       c.norm.affine = model::NormAffine::kNone;
       c.norm.variant.type = NormType::kLayerNorm;
     }},
    {"ParallelMultiplierHeadQkNorm",
     [](ModelConfig& c) {
       c.block = {model::Topology::kParallel, 1, 1.7};
       c.qk_norm.kind = model::QkNorm::kHead;
       c.norm.variant.unit_offset = true;
       c.n_kv_heads = 2;
     }},
    {"HeadPerLayerNormAfterRope",
     [](ModelConfig& c) {
       c.qk_norm = {.kind = model::QkNorm::kHeadPer,
                    .type = NormType::kLayerNorm,
                    .bias = true,
                    .order = model::QkNormOrder::kAfterRope,
                    .eps = 1e-2};
       c.n_kv_heads = 2;
     }},
    {"FullLayerNormQk",
     [](ModelConfig& c) {
       c.qk_norm = {.kind = model::QkNorm::kFull, .type = NormType::kLayerNorm};
       c.rope.dims = 2;
     }},
    {"L2QkNorm",
     [](ModelConfig& c) {
       c.qk_norm = {.kind = model::QkNorm::kL2, .order = model::QkNormOrder::kAfterRope};
       c.n_kv_heads = 1;
     }},
    {"YarnOnSomeLayersReversed",
     [](ModelConfig& c) {
       c.rope.scaling = model::RopeScaling::kYarn;
       c.rope.factor = 4;
       c.rope.original_positions = 8;
       c.rope.attention_factor = 1.3;
       c.rope.base_cycle = {100.0, 0.0};
       c.rope.reversed = true;
     }},
    {"Llama3Rope",
     [](ModelConfig& c) {
       c.rope.scaling = RopeScaling::kLlama3;
       c.rope.factor = 8;
       c.rope.original_positions = 1000;  // between the wavelengths 6.3 and 628: the second pair is blended
       c.rope.low_freq_factor = 1;
     }},
    {"LongropeWithItsFactor",
     [](ModelConfig& c) {
       c.rope.scaling = RopeScaling::kLongrope;
       c.rope.factor = 2;
       c.rope.original_positions = 8;
       c.rope.short_factor = {1, 2};
       c.rope.long_factor = {1.5, 3};
       c.rope.attention_factor = 1.2;
       c.n_kv_heads = 2;
     }},
    {"DynamicRopeOfSomeDims",
     [](ModelConfig& c) {
       c.head_dim = 6;
       c.rope.dims = 4;
       c.rope.style = RopeStyle::kInterleaved;
       c.rope.scaling = RopeScaling::kDynamic;
       c.rope.alpha = 10;
     }},
    {"ProportionalRope",
     [](ModelConfig& c) {
       c.rope.scaling = model::RopeScaling::kProportional;
       c.rope.dims = 2;
     }},
    {"Dropout",
     [](ModelConfig& c) {
       c.dropout = {.embed = 0.2, .attn = 0.3, .resid = 0.25};
       c.pos = {model::PosType::kLearned, 16};
     }},
    {"ParallelDropout",
     [](ModelConfig& c) {
       c.dropout = {.embed = 0.2, .attn = 0.3, .resid = 0.25};
       c.block = {model::Topology::kParallel, 1};
     }},
    {"Windows",
     [](ModelConfig& c) {
       c.attn.window_cycle = {3, -1};
       c.n_kv_heads = 2;
     }},
    {"Chunks",
     [](ModelConfig& c) {
       c.attn.window_cycle = {3};
       c.attn.window_kind = model::WindowKind::kChunked;
       c.attn.last_layer_full = true;
     }},
    {"ScoresSoftcapped", [](ModelConfig& c) { c.attn.softcap = 0.4; }},
    {"AlibiOfThreeHeads",
     [](ModelConfig& c) {
       c.n_heads = c.n_kv_heads = 3;
       c.pos = {.type = model::PosType::kAlibi, .alibi_scale = 0.5};
       c.rope.dims = 0;
     }},
    {"AlibiWithWindowAndSoftcap",
     [](ModelConfig& c) {
       c.pos.type = model::PosType::kAlibi;
       c.rope.dims = 0;
       c.attn.window_cycle = {4};
       c.attn.softcap = 1;
     }},
    {"SharedT5Bias",
     [](ModelConfig& c) {
       c.pos = {.type = model::PosType::kT5Bias, .t5_num_buckets = 5, .t5_max_distance = 6};
       c.rope.dims = 0;
       c.n_kv_heads = 2;
     }},
    {"T5BiasByLayerSoftcappedWindowDropout",
     [](ModelConfig& c) {
       c.pos = {.type = model::PosType::kT5Bias, .t5_num_buckets = 4, .t5_max_distance = 9, .t5_shared = false};
       c.rope.dims = 0;
       c.attn.window_cycle = {-1, 4};
       c.attn.softcap = 1;
       c.dropout.attn = 0.2;
       c.tied = true;
     }},
    {"Clipped",
     [](ModelConfig& c) {
       c.attn.clip_qkv = 0.5;
       c.bias.qkv = true;
     }},
    {"ClippedParallelGroupedAlibi",
     [](ModelConfig& c) {
       c.attn.clip_qkv = 0.5;
       c.n_kv_heads = 2;
       c.block = {model::Topology::kParallel, 1};
       c.pos.type = model::PosType::kAlibi;
       c.rope.dims = 0;
     }},
    {"Sinks",
     [](ModelConfig& c) {
       c.attn.sinks = true;
       c.n_kv_heads = 2;
     }},
    {"SinksDropout",
     [](ModelConfig& c) {
       c.attn.sinks = true;
       c.attn.window_cycle = {-1, 2};
       c.dropout.attn = 0.3;
     }},
    {"QueryTemperature",
     [](ModelConfig& c) {
       c.attn.temperature_beta = 0.7;
       c.attn.temperature_positions = 2;
       c.n_kv_heads = 1;
     }},
    {"QkNormAndTemperatureByRotation",
     [](ModelConfig& c) {
       c.rope.base_cycle = {1e4, 0.0};
       c.qk_norm = {.kind = model::QkNorm::kHead, .layers = model::RotationKind::kRotated};
       c.attn.temperature_beta = 0.7;
       c.attn.temperature_positions = 3;
       c.attn.temperature_offset = 1;
       c.attn.temperature_layers = model::RotationKind::kUnrotated;
     }},
    {"Xielu",
     [](ModelConfig& c) {
       c.ffn = {Activation::kXielu, false};
     }},
    {"XieluInParallelBlockWithBias",
     [](ModelConfig& c) {
       c.ffn = {Activation::kXielu, false};
       c.bias.ffn = true;
       c.block = {model::Topology::kParallel, 1};
     }},
    {"NarrowValues",
     [](ModelConfig& c) {
       c.attn.v_head_dim = 3;
       c.n_kv_heads = 2;
       c.bias.qkv = true;
     }},
    {"WideValuesNormedKeysParallel",
     [](ModelConfig& c) {
       c.attn.v_head_dim = 7;
       c.qk_norm.kind = model::QkNorm::kHead;
       c.block = {model::Topology::kParallel, 1};
     }},
    {"Latent", [](ModelConfig& c) { make_latent(c); }},
    {"LatentOfOneQueryMatrix",
     [](ModelConfig& c) {
       make_latent(c);
       c.attn.q_rank = 0;
       c.rope.style = RopeStyle::kInterleaved;
       c.attn.v_head_dim = 0;
       c.bias = {true, true, true, true};
     }},
    {"LatentParallelOneNormDropout",
     [](ModelConfig& c) {
       make_latent(c);
       c.block = {model::Topology::kParallel, 1};
       c.dropout = {.embed = 0.2, .attn = 0.3, .resid = 0.25};
     }},
    {"LatentSandwichWindowsSoftcap",
     [](ModelConfig& c) {
       make_latent(c);
       c.norm.placement = model::NormPlacement::kSandwich;
       c.attn.window_cycle = {3, -1};
       c.attn.softcap = 0.4;
       c.rope.base_cycle = {100.0, 0.0};
     }},
    {"BasesAndScalingByKind",
     [](ModelConfig& c) {
       c.attn.window_cycle = {3, -1};
       c.rope.local_base = 100;
       c.rope.scaling = RopeScaling::kLinear;
       c.rope.factor = 3;
       c.rope.scaled_layers = model::ScaledLayers::kFull;
     }},
    {"FullLayersDoNotRotate",
     [](ModelConfig& c) {
       c.attn.window_cycle = {-1, 3};
       c.rope.global_enabled = false;
     }},
    {"HeadsByKindValuesAreKeys",
     [](ModelConfig& c) {
       c.attn.window_cycle = {3, -1};
       c.attn.global_head_dim = 6;
       c.attn.global_n_kv_heads = 2;
       c.attn.k_eq_v = c.attn.v_norm = true;
       c.qk_norm.kind = model::QkNorm::kHead;
       c.rope.scaling = RopeScaling::kProportional;
       c.rope.scaled_layers = model::ScaledLayers::kFull;
       c.rope.global_dims = 2;
       c.block.out_scalar = true;
       c.norm.final = false;
       c.bias.qkv = true;
     }},
    {"ValuesAreKeysNormedAfterRopeInAFusedBlock",
     [](ModelConfig& c) {
       c.block = {.topology = model::Topology::kParallel, .out_scalar = true};
       c.attn.window_cycle = {-1, 3};
       c.attn.k_eq_v = true;
       c.attn.clip_qkv = 0.5;
       c.n_kv_heads = 2;
       c.qk_norm = {.kind = model::QkNorm::kFull, .order = model::QkNormOrder::kAfterRope};
     }},
    {"ValueNormAlone",
     [](ModelConfig& c) {
       c.attn.v_norm = true;
       c.n_kv_heads = 1;
     }},
    {"Experts", [](ModelConfig& c) { c.moe = experts(5, 2); }},
    {"ExpertsOfOneLayerChosenBySigmoidInGroups",
     [](ModelConfig& c) {
       c.moe = experts(6, 3);
       c.moe.first_layer = 1;
       c.moe.rule.score = model::RouterScore::kSigmoid;
       c.moe.rule.sum_eps = 1e-20;
       c.moe.rule.scale = 2.5;
       c.moe.rule.groups = 3;
       c.moe.rule.top_groups = 2;
       c.moe.shared_d_ff = 4;
     }},
    {"ExpertsNotRenormalizedGatedShared",
     [](ModelConfig& c) {
       c.moe = experts(4, 2);
       c.moe.rule.renormalize = false;
       c.moe.shared_d_ff = 7;
       c.moe.shared_gate = true;
       c.norm.placement = model::NormPlacement::kSandwich;
       c.dropout.resid = 0.25;
     }},
    {"ExpertsScaledInputs",
     [](ModelConfig& c) {
       c.moe = experts(3, 1);
       c.moe.rule.renormalize = false;
       c.moe.rule.score = model::RouterScore::kSigmoid;
       c.moe.scale_input = true;
       c.moe.shared_d_ff = 5;
       c.block = {model::Topology::kParallel, 1};
     }},
    {"ExpertsWithBiasesAndLimits",
     [](ModelConfig& c) {
       c.moe = experts(4, 3);
       c.moe.router_bias = true;
       c.bias.ffn = true;
       c.ffn = {Activation::kQuickGelu, true, 0.3, 1.0};
     }},
    {"ExpertsBesideFfn",
     [](ModelConfig& c) {
       c.moe = experts(4, 2);
       c.moe.router_norm = c.moe.expert_scale = c.moe.beside_ffn = true;
       c.norm.placement = model::NormPlacement::kSandwich;
       c.dropout.resid = 0.25;
     }},
    {"ExpertsWithARouterNormInParallel",
     [](ModelConfig& c) {
       c.moe = experts(4, 2);
       c.moe.router_norm = true;
       c.block = {model::Topology::kParallel, 2};
     }},
    {"ExpertsUngatedMaxOfGroups",
     [](ModelConfig& c) {
       c.moe = experts(4, 2);
       c.moe.rule.groups = 2;
       c.moe.rule.group_score = model::GroupScore::kMax;
       c.moe.rule.sum_floor = 0.9;
       c.ffn = {Activation::kGeluTanh, false};
     }},
    {"ExpertsWithAnEpsInTheSumOfASoftmaxInGroups",
     [](ModelConfig& c) {
       c.moe = experts(6, 2);
       c.moe.rule.groups = 3;
       c.moe.rule.top_groups = 2;
       c.moe.rule.group_score = model::GroupScore::kTopTwo;
       c.moe.rule.sum_eps = 0.2;
       c.moe.rule.scale = 1.3;
       c.moe.router_bias = true;
     }},
    {"ExpertsOfSigmoidsWithAFloorAndAnEps",
     [](ModelConfig& c) {
       c.moe = experts(5, 2);
       c.moe.rule.score = model::RouterScore::kSigmoid;
       c.moe.rule.sum_floor = 1.2;
       c.moe.rule.sum_eps = 0.1;
       c.moe.scale_input = true;
     }},
    {"HeadsOfFive",
     [](ModelConfig& c) {
       c.head_dim = 5;
       c.n_kv_heads = 2;
     }},
};

class ModelGradient : public ::testing::TestWithParam<ModelAxis> {
 protected:
  static TinyModel make(const ModelAxis& axis) {
    ModelConfig c = tiny_config();
    axis.apply(c);
    return TinyModel(c, DType::kFloat64, 2, 7);
  }
  static Ctx training(const TinyModel& m) {
    Ctx ctx = m.ctx();
    ctx.dropout = {.enabled = true, .seed = 5, .first_sample = 3, .sequence_length = 7};
    return ctx;
  }
  static std::vector<double> gradients(TinyModel& m, const Ctx& ctx) {
    m.loss_and_gradients(ctx);
    return m.host(m.store().grads());
  }
};

TEST_P(ModelGradient, EqualsFiniteDifferences) {
  TinyModel m = make(GetParam());
  GradCheckProblem problem;
  for (const auto& p : m.store().parameters()) problem.weights.push_back(&p->weight);
  problem.build = [&](const Ctx& ctx, const std::vector<Var>&, double& loss) {
    loss = m.loss(ctx);
    return Var{};
  };
  // Each element costs two more passes forward, which the sanitizers need not see again.
  const bool sanitized = testing::under_address_sanitizer();
  const GradCheckResult r = check_gradients(training(m), problem, sanitized ? 1 : 24);
  EXPECT_GT(r.checked, sanitized ? 4 : 100);
  EXPECT_LT(r.worst, 1e-6) << r.worst_where;
}

TEST_P(ModelGradient, SameBitsRecomputedAndDeferred) {
  TinyModel m = make(GetParam());
  const std::vector<double> plain = gradients(m, training(m));
  for (const Recompute mode : {Recompute::kSelective, Recompute::kBlock}) {
    Ctx ctx = training(m);
    ctx.recompute = mode;
    EXPECT_EQ(gradients(m, ctx), plain);
  }
  // Weight gradients run after all input gradients.
  Tape tape(m.backend(), m.ctx().stream);
  Ctx ctx = training(m);
  ctx.tape = &tape;
  m.store().begin_step();
  m.loss(ctx);
  WeightWork later;
  tape.backward(&later);
  EXPECT_GT(later.size(), 0);
  later.run();
  const std::vector<double> deferred = m.host(m.store().grads());
  ASSERT_EQ(deferred.size(), plain.size());
  // A fused bias adds in the same order; only the tied table's two uses could swap, and both stay in order.
  EXPECT_EQ(deferred, plain);
}

INSTANTIATE_TEST_SUITE_P(Axes, ModelGradient, ::testing::ValuesIn(kAxes),
                         [](const auto& axis) { return axis.param.name; });

}  // namespace
}  // namespace ashlar
