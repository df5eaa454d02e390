// Classes that are Llama but for norms, biases, factors or the pairs that rotate: what config.json says of each.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/hf/class_rows.h"
#include "parallel/model/rope_frequencies.h"

// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormPlacement;
using model::QkNorm;

constexpr model::NormConfig with_placement(NormPlacement placement) {
  model::NormConfig norm = kRmsNorm;
  norm.placement = placement;
  return norm;
}

Row attention_bias(const char* key, bool fallback) {
  return flag(key, {AXIS(bias.qkv), AXIS(bias.attn_out)}, fallback);
}

/// The number whose reciprocal is `factor`; the nearest where no double is.
double divisor_of(double factor) {
  const double guess = 1.0 / factor;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double d : {guess, std::nextafter(guess, 0.0), std::nextafter(guess, kInfinity)})
    if (1.0 / d == factor) return d;
  return guess;
}

/// A number that divides the logits.
Row logit_divisor(const char* key, double fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const double divisor = r.number({key}, fallback);
                if (!(divisor > 0)) r.refuse(key, "expected a number above 0");
                c.model.logit_scale = divisor > 0 ? 1.0 / divisor : 1.0;
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = divisor_of(c.model.logit_scale); }};
}

}  // namespace

ClassTable olmo2() {
  return {.base = {.norm = with_placement(NormPlacement::kOutput), .qk_norm = {.kind = QkNorm::kFull}},
          .rows = joined(usual_rows({50304, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias("attention_bias", false),
                          qk_norm_eps(), rope({.whole_heads = true})})};
}

namespace {

ClassTable glm_with(NormPlacement placement) {
  return {.base = {.norm = with_placement(placement), .rope = kInterleaved},
          .rows = joined(usual_rows({151552, 131072, 4096, 40, 32, 13696}, "silu", "rms_norm_eps", 1.5625e-7),
                         {kv_heads(2), head_dim(HeadDim::kWritten, 128), flag("attention_bias", {AXIS(bias.qkv)}, true),
                          rope({.fraction = 0.5})})};
}

}  // namespace

ClassTable glm() { return glm_with(NormPlacement::kPre); }

ClassTable glm4() { return glm_with(NormPlacement::kSandwich); }

namespace {

/// What the Granites and HyperCLOVA X share.
Rows granite_kin() {
  return {flag("mlp_bias", {AXIS(bias.ffn)}, false), number("embedding_multiplier", {AXIS(embed_scale)}, 1.0),
          number("residual_multiplier", {AXIS(block.residual_multiplier)}, 1.0), rope({.whole_heads = true})};
}

/// Granite and HyperCLOVA X.
Rows granite_rows() {
  return joined(usual_rows({32000, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
                {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias("attention_bias", false)});
}

}  // namespace

Rows granite_factors() {
  return joined(granite_kin(),
                {number("attention_multiplier", {AXIS(attn.scale)}, 1.0), logit_divisor("logits_scaling", 1.0)});
}

ClassTable granite() { return {.base = {.norm = kRmsNorm}, .rows = joined(granite_rows(), granite_factors())}; }

ClassTable hyperclovax() {
  const Row scale = {.read =
                         [](JsonReader& r, HfConfig& c) {
                           c.model.attn.scale =
                               r.optional_number({"attention_multiplier"}).value_or(c.model.attn.scale);
                         },
                     .write = [](Json& j, const HfConfig& c) { j["attention_multiplier"] = c.model.attn.scale; }};
  const Row post = {
      .read =
          [](JsonReader& r, HfConfig& c) {
            const bool both = r.boolean({"use_post_norm"}, true);
            c.model.norm.placement = both ? NormPlacement::kSandwich : NormPlacement::kPre;
          },
      .write = [](Json& j,
                  const HfConfig& c) { j["use_post_norm"] = c.model.norm.placement == NormPlacement::kSandwich; }};
  return {.base = {.norm = kRmsNorm},
          .rows = joined(joined(granite_rows(), granite_kin()),
                         {scale, post, number("logits_scaling", {AXIS(logit_scale)}, 1.0)})};
}

ClassTable cohere() {
  const Row qk_norm = {
      .read =
          [](JsonReader& r, HfConfig& c) {
            if (!r.boolean({"use_qk_norm"}, false)) return;
            c.model.qk_norm = {.kind = QkNorm::kHeadPer, .type = NormType::kLayerNorm, .eps = c.model.norm.variant.eps};
          },
      .write = [](Json& j, const HfConfig& c) { j["use_qk_norm"] = c.model.qk_norm.kind != QkNorm::kNone; }};
  return {.base = {.norm = {.variant = {.type = NormType::kLayerNorm}, .affine = model::NormAffine::kScale},
                   .block = kParallel,
                   .rope = kInterleaved},
          .rows = joined(
              usual_rows({256000, 8192, 8192, 40, 64, 22528}, "silu", "layer_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias("attention_bias", false), qk_norm,
               number("logit_scale", {AXIS(logit_scale)}, 0.0625), rope({.base = 500000.0, .whole_heads = true})})};
}

ClassTable helium() {
  const Row whole = {.read = [](JsonReader&, HfConfig&) {},
                     .limit =
                         [](const ModelConfig& m) {
                           return m.q_width() == m.d_model
                                      ? std::string()
                                      : str_cat("model.head_dim = ", m.head_dim, ": ", class_name(Family::kHelium),
                                                " has heads as wide as d_model together");
                         }};
  return {.base = {.norm = kRmsNorm, .rope = kInterleaved},
          .rows = joined(
              usual_rows({48000, 4096, 2560, 24, 20, 7040}, "silu", "rms_norm_eps", 1e-8),
              {kv_heads(20), head_dim(HeadDim::kWritten, 128), whole, flag("attention_bias", {AXIS(bias.qkv)}, false),
               flag("mlp_bias", {AXIS(bias.ffn)}, false), rope({.base = 100000.0, .whole_heads = true})})};
}

ClassTable hunyuan() {
  return {.base = {.norm = kRmsNorm, .qk_norm = {.kind = QkNorm::kHead, .order = model::QkNormOrder::kAfterRope}},
          .rows = joined(usual_rows({290943, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kWritten), attention_bias("attention_bias", false),
                          qk_norm_eps(), rope({.whole_heads = true})})};
}

ClassTable seed_oss() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(
              usual_rows({155136, 524288, 4096, 64, 80, 27648}, "silu", "rms_norm_eps", 1e-6),
              {number("attention_dropout", {AXIS(dropout.attn)}, 0.1),
               number("residual_dropout", {AXIS(dropout.resid)}, 0.1), kv_heads(8), head_dim(HeadDim::kWritten, 128),
               flag("attention_bias", {AXIS(bias.qkv)}, true), flag("attention_out_bias", {AXIS(bias.attn_out)}, false),
               flag("mlp_bias", {AXIS(bias.ffn)}, false), rope({.whole_heads = true})})};
}

ClassTable ernie() {
  return {.base = {.norm = kRmsNorm, .rope = kInterleaved},
          .rows = joined(usual_rows({103424, 131072, 1024, 18, 16, 3072}, "silu", "rms_norm_eps", 1e-5),
                         {always_zero("attention_dropout", "the class drops nothing; expected 0"), kv_heads(2),
                          head_dim(HeadDim::kWritten, 128),
                          flag("use_bias", {AXIS(bias.qkv), AXIS(bias.attn_out), AXIS(bias.ffn)}, false),
                          rope({.base = 500000.0, .whole_heads = true})})};
}

namespace {

/// no_rope_layers: a list, 1 where a layer rotates; without it every no_rope_layer_interval-th does not.
void read_unturned_layers(JsonReader& r, HfConfig& c) {
  ModelConfig& m = c.model;
  const nlohmann::json* list = r.raw("no_rope_layers");
  const int64_t interval = r.optional_size({"no_rope_layer_interval"}).value_or(4);
  std::vector<double> bases;
  for (int64_t layer = 0; layer < m.n_layers; ++layer) {
    bool turns = (layer + 1) % interval != 0;
    if (list != nullptr) {
      const bool good = list->is_array() && std::ssize(*list) >= m.n_layers && (*list)[layer].is_number_integer();
      if (!good) return r.refuse("no_rope_layers", "expected a list of 0 and 1, one a layer");
      turns = (*list)[layer].get<int64_t>() != 0;
    }
    bases.push_back(turns ? m.rope.base : 0.0);
  }
  m.rope.base_cycle = model::shortest_cycle(bases);
  if (m.rope.base_cycle == std::vector<double>{m.rope.base}) m.rope.base_cycle.clear();
}

void write_unturned_layers(Json& j, const HfConfig& c) {
  Json list = Json::array();
  for (int64_t layer = 0; layer < c.model.n_layers; ++layer)
    list.push_back(model::rope_of(c.model, layer).base > 0 ? 1 : 0);
  j["no_rope_layers"] = list;
}

}  // namespace

ClassTable smollm3() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({128256, 32768, 2048, 36, 16, 11008}, "silu", "rms_norm_eps", 1e-6),
                         {kv_heads(4),
                          head_dim(HeadDim::kWrittenIfNeeded),
                          attention_bias("attention_bias", false),
                          flag("mlp_bias", {AXIS(bias.ffn)}, false),
                          rope({.base = 2e6, .whole_heads = true}),
                          {.read = read_unturned_layers, .write = write_unturned_layers},
                          always_false("use_sliding_window", "windows of this class are not supported; expected false"),
                          ignored({"sliding_window", "max_window_layers"}),
                          {.read = [](JsonReader& r, HfConfig& c) {
                            read_layer_types(r, c.model, std::nullopt, [](int64_t) { return false; });
                          }}})};
}

}  // namespace ashlar::hf
