#pragma once

#include "core/autograd/ctx.h"
#include "parallel/model/model_config.h"
#include "tests/layouts/masked_ids.h"

namespace ashlar::testing {

/// Sequences of a micro-batch, and tokens of each.
inline constexpr int64_t kB = 2, kT = 8;

/// A model of the table that every layout must compute alike. Eight heads, so that up to eight tensor ranks divide it.
struct Axes {
  const char* name;
  model::Topology topology = model::Topology::kSerial;
  int parallel_norms = 1;
  int64_t n_kv_heads = 8;
  bool tied = false;
  model::PosType pos = model::PosType::kRope;
  bool dropout = false;
  bool biases = false;
  bool gated = true;
  NormType norm = NormType::kRmsNorm;
  bool documents = false;
  Recompute recompute = Recompute::kNone;
  bool factors = false;  ///< gains as 1 + g, no final norm, factors on embedding and logits
  model::NormPlacement placement = model::NormPlacement::kPre;
  bool embed_norm = false;
  double residual_multiplier = 1;
  model::QkNormConfig qk_norm = {};
  bool windows = false;  ///< a window in every second layer, scores with a soft cap
  bool sinks = false;    ///< sinks, q, k and v clipped, rotary queries with a temperature
  model::RopeConfig rope = {};
  int64_t vocab_size = 37;
  model::FfnConfig ffn = {};   ///< but for `gated`
  bool head = false;           ///< head rows of length one, a softcap, the largest logit in the z-loss, masked ids
  int64_t table_width = 24;    ///< embed_dim
  int64_t offset = 0;          ///< of the table of positions
  int64_t v_head_dim = 0;      ///< of a width of their own
  int64_t latent = 0;          ///< keys and values from a latent so wide; heads are then two columns wider
  int64_t q_latent = 0;        ///< and queries from one so wide
  bool bias_by_layer = false;  ///< T5's, else one for all layers
  int64_t full_kv_heads = 0;   ///< not 0: every second layer is full, with heads of its own whose keys are its values
  model::MoeConfig moe = {};
};

/// One of these models in a dtype.
struct ModelCase {
  Axes axes;
  DType dtype;
  int64_t turn;  ///< chooses meshes
};
inline std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.axes.name << " " << c.dtype; }

/// Three times the spread of gate and up values: some lie beyond, and next to none so near that rounding puts them on
/// the other side, where their gradient is another one.
inline constexpr double kClamp = 1.5;

/// A router whose options all have another value than their default.
inline constexpr RouterRule kGroupsOfSigmoids = {
    .score = RouterScore::kSigmoid, .groups = 4, .top_groups = 2, .sum_eps = 1e-20, .scale = 2.5};

inline const Axes kAxes[] = {
    {.name = "Serial"},
    {.name = "ParallelOneNorm", .topology = model::Topology::kParallel},
    {.name = "ParallelTwoNorms", .topology = model::Topology::kParallel, .parallel_norms = 2, .biases = true},
    {.name = "GroupedTied", .n_kv_heads = 4, .tied = true, .dropout = true},
    {.name = "MultiQuery", .n_kv_heads = 1, .biases = true, .documents = true},
    {.name = "MultiQueryFused", .topology = model::Topology::kParallel, .n_kv_heads = 2, .tied = true},
    {.name = "Gpt2",
     .tied = true,
     .pos = model::PosType::kLearned,
     .dropout = true,
     .biases = true,
     .gated = false,
     .norm = NormType::kLayerNorm},
    {.name = "ParallelDropout",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 2,
     .dropout = true,
     .recompute = Recompute::kBlock},
    {.name = "Selective",
     .n_kv_heads = 2,
     .biases = true,
     .norm = NormType::kLayerNorm,
     .recompute = Recompute::kSelective,
     .factors = true},
    {.name = "PostNorm", .biases = true, .placement = model::NormPlacement::kPost, .embed_norm = true},
    {.name = "RopeByLayer",
     .n_kv_heads = 2,
     .rope = {.base_cycle = {100.0, 0.0},
              .scaling = model::RopeScaling::kYarn,
              .factor = 4,
              .original_positions = 8,
              .attention_factor = 1.3}},
    {.name = "Sandwich",
     .n_kv_heads = 2,
     .dropout = true,
     .recompute = Recompute::kBlock,
     .factors = true,
     .placement = model::NormPlacement::kSandwich,
     .residual_multiplier = 0.5,
     .qk_norm = {.kind = model::QkNorm::kHead}},
    {.name = "OutputFullNorm",
     .n_kv_heads = 2,
     .recompute = Recompute::kSelective,
     .placement = model::NormPlacement::kOutput,
     .qk_norm = {.kind = model::QkNorm::kFull}},
    {.name = "HeadPerAfterRope",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 4,
     .residual_multiplier = 0.5,
     .qk_norm = {.kind = model::QkNorm::kHeadPer,
                 .type = NormType::kLayerNorm,
                 .order = model::QkNormOrder::kAfterRope}},
    {.name = "FullLayerNorm",
     .n_kv_heads = 1,
     .qk_norm = {.kind = model::QkNorm::kFull, .type = NormType::kLayerNorm, .bias = true}},
    {.name = "WindowsAlibi", .n_kv_heads = 2, .pos = model::PosType::kAlibi, .documents = true, .windows = true},
    {.name = "SharedBias",
     .n_kv_heads = 4,
     .tied = true,
     .pos = model::PosType::kT5Bias,
     .dropout = true,
     .documents = true,
     .recompute = Recompute::kBlock},
    {.name = "BiasByLayer",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 1,
     .pos = model::PosType::kT5Bias,
     .windows = true,
     .bias_by_layer = true},
    {.name = "ByRotation",
     .n_kv_heads = 4,
     .qk_norm = {.kind = model::QkNorm::kHead, .layers = model::RotationKind::kRotated},
     .sinks = true,
     .rope = {.base_cycle = {1e4, 0.0}}},
    {.name = "SinksTemperature", .n_kv_heads = 4, .tied = true, .dropout = true, .biases = true, .sinks = true},
    {.name = "Ends",
     .pos = model::PosType::kLearned,
     .biases = true,
     .ffn = {.act = Activation::kQuickGelu, .clamp = kClamp, .linear_offset = 1},
     .head = true,
     .table_width = 16,
     .offset = 2},
    {.name = "TiedEnds",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 2,
     .tied = true,
     .pos = model::PosType::kSinusoidal,
     .gated = false,
     .ffn = {.act = Activation::kRelu2},
     .table_width = 40,
     .offset = 2},
    {.name = "Latent", .dropout = true, .documents = true, .v_head_dim = 3, .latent = 10, .q_latent = 7},
    {.name = "LatentOneMatrix",
     .biases = true,
     .gated = false,
     .recompute = Recompute::kSelective,
     .placement = model::NormPlacement::kSandwich,
     .ffn = {.act = Activation::kXielu},
     .latent = 5},
    {.name = "LatentParallel",
     .topology = model::Topology::kParallel,
     .tied = true,
     .recompute = Recompute::kBlock,
     .v_head_dim = 8,
     .latent = 6,
     .q_latent = 12},
    {.name = "XieluValues",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 2,
     .gated = false,
     .qk_norm = {.kind = model::QkNorm::kHead},
     .ffn = {.act = Activation::kXielu},
     .v_head_dim = 5},
    {.name = "HeavyHead", .biases = true, .vocab_size = 2401},  // as costly as layers: the last stage has it alone
    {.name = "LayersOfTwoKinds",
     .biases = true,
     .factors = true,
     .placement = model::NormPlacement::kSandwich,
     .qk_norm = {.kind = model::QkNorm::kHead},
     .full_kv_heads = 2},
    {.name = "Experts",
     .n_kv_heads = 2,
     .dropout = true,
     .moe = {.experts = 6, .top_k = 2, .d_ff = 16, .shared_d_ff = 8, .balance_coef = 0.3, .z_coef = 0.1}},
    {.name = "ExpertsBySigmoid",
     .biases = true,
     .recompute = Recompute::kBlock,
     .moe = {.experts = 8,
             .top_k = 3,
             .d_ff = 8,
             .first_layer = 1,
             .shared_d_ff = 16,
             .shared_gate = true,
             .rule = kGroupsOfSigmoids,
             .router_bias = true,
             .balance_coef = 0.2}},
    {.name = "ExpertsBySelectionBias",
     .n_kv_heads = 4,
     .moe = {.experts = 8,
             .top_k = 2,
             .d_ff = 16,
             .shared_d_ff = 8,
             .rule = kGroupsOfSigmoids,
             .selection_bias = true,
             .bias_rate = 0.01,
             .balance = model::Balance::kPrevious,
             .balance_coef = 0.3}},
    {.name = "ExpertsBiasedSoftmax",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 2,
     .tied = true,
     .recompute = Recompute::kBlock,
     .moe = {.experts = 4,
             .top_k = 2,
             .d_ff = 8,
             .first_layer = 1,
             .rule = {.sum_floor = 1e-12},
             .selection_bias = true,
             .bias_rate = 0.02}},
    {.name = "ExpertsBesideFfn",
     .n_kv_heads = 2,
     .recompute = Recompute::kSelective,
     .placement = model::NormPlacement::kSandwich,
     .qk_norm = {.kind = model::QkNorm::kHead},
     .moe = {.experts = 5,
             .top_k = 2,
             .d_ff = 8,
             .router_norm = true,
             .expert_scale = true,
             .beside_ffn = true,
             .balance_coef = 0.2}},
    {.name = "ExpertsScaledInputs",
     .topology = model::Topology::kParallel,
     .recompute = Recompute::kSelective,
     .moe = {.experts = 5, .top_k = 1, .d_ff = 8, .scale_input = true, .rule = {.renormalize = false}, .z_coef = 0.2}},
    {.name = "FusedOfTwoKinds",
     .topology = model::Topology::kParallel,
     .n_kv_heads = 2,
     .dropout = true,
     .recompute = Recompute::kBlock,
     .factors = true,
     .qk_norm = {.kind = model::QkNorm::kFull, .order = model::QkNormOrder::kAfterRope},
     .full_kv_heads = 8},
};

inline model::ModelConfig config_of(const Axes& a) {
  model::ModelConfig c;
  c.d_model = 24;
  c.n_layers = 2;
  c.n_heads = 8;
  c.n_kv_heads = a.n_kv_heads;
  c.head_dim = 4;
  c.d_ff = 40;
  c.vocab_size = a.vocab_size;
  c.vocab_pad_to = 8;  // of 37: the last of eight ranks has two ids, the others five
  c.norm.variant.type = a.norm;
  c.norm.affine = a.biases ? model::NormAffine::kScaleBias : model::NormAffine::kScale;
  c.norm.placement = a.placement;
  c.norm.final = a.placement != model::NormPlacement::kPost;
  c.norm.embed = a.embed_norm;
  c.qk_norm = a.qk_norm;
  c.block = {.topology = a.topology, .parallel_norms = a.parallel_norms, .residual_multiplier = a.residual_multiplier};
  c.bias = {.qkv = a.biases, .attn_out = a.biases, .ffn = a.biases, .lm_head = a.biases};
  c.ffn = a.ffn;
  c.ffn.gated = a.gated;
  c.moe = a.moe;
  c.pos = {.type = a.pos, .max_positions = a.pos == model::PosType::kLearned ? 16 : 0, .learned_offset = a.offset};
  if (a.pos == model::PosType::kT5Bias)
    c.pos = {.type = a.pos, .t5_num_buckets = 5, .t5_max_distance = 6, .t5_shared = !a.bias_by_layer};
  if (a.table_width != c.d_model) c.embed_dim = a.table_width;
  c.rope = a.rope;
  c.rope.dims = a.pos == model::PosType::kRope ? 4 : 0;
  c.attn.scale = 0.5;
  c.attn.v_head_dim = a.v_head_dim;
  if (a.latent > 0) {
    c.attn.kind = model::AttentionKind::kMla;
    c.attn.kv_rank = a.latent;
    c.attn.q_rank = a.q_latent;
    c.head_dim += 2;
  }
  if (a.dropout) c.dropout = {.embed = 0.1, .attn = 0.2, .resid = 0.1};
  c.tied = a.tied;
  if (a.factors) {
    c.norm.variant.unit_offset = true;
    c.norm.final = false;
    c.embed_scale = 4;
    c.logit_scale = 0.5;
  }
  if (a.windows) {
    c.attn.window_cycle = {3, -1};
    c.attn.softcap = 0.5;
  }
  if (a.full_kv_heads > 0) {
    c.attn.window_cycle = {3, -1};
    c.attn.global_n_kv_heads = a.full_kv_heads;
    c.attn.global_head_dim = 6;
    c.attn.k_eq_v = c.attn.v_norm = true;
    // In front of a last norm the size of the stream counts for nothing: the gradient of its factor is zero.
    c.block.out_scalar = !c.norm.final;
  }
  if (a.full_kv_heads > 0 && a.pos == model::PosType::kRope) {
    c.rope.local_base = 100;
    if (!a.sinks) {  // whose temperatures need whole heads
      c.rope.scaling = model::RopeScaling::kProportional;
      c.rope.scaled_layers = model::ScaledLayers::kFull;
      c.rope.global_dims = 2;
    }
  }
  if (a.sinks) {
    c.attn.sinks = true;
    c.attn.clip_qkv = 0.3;
    if (a.pos == model::PosType::kRope) {
      c.attn.temperature_beta = 0.5;
      c.attn.temperature_positions = 2;
      if (a.qk_norm.layers != model::RotationKind::kAll) {
        c.attn.temperature_layers = model::RotationKind::kUnrotated;
        c.attn.temperature_offset = 1;
      }
    }
  }
  c.loss.z_coef = 1e-3;
  if (a.head) {
    c.norm_rows = true;
    c.softcap = 2;
    c.logit_scale = 3;
    c.loss = {.z_coef = 0.02, .z_kind = ZKind::kMaxLogit};
    c.masked_ids = kMaskedIds;
  }
  c.init = {.scheme = model::InitScheme::kNormal, .std = 0.1, .residual_scale = 1};
  return c;
}

}  // namespace ashlar::testing
