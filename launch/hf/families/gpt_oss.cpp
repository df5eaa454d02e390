#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

/// The activation of experts is min(g, limit) * sigmoid(alpha * g) * (clamp(u, -limit, limit) + 1), for which the class
/// does not read hidden_act.
Row limits() {
  constexpr const char *kLimit = "swiglu_limit", *kAlpha = "swiglu_alpha";
  const auto read = [](JsonReader& r, HfConfig& c) {
    r.ignore({"hidden_act"});
    c.model.ffn.clamp = r.number({kLimit}, 7.0);
    if (r.number({kAlpha}, 1.702) != 1.702)
      r.refuse(kAlpha, "expected 1.702, the factor in ffn.act = quick_gelu; use another model");
  };
  const auto write = [](Json& j, const HfConfig& c) {
    j["hidden_act"] = "silu";
    j[kAlpha] = 1.702;
    j[kLimit] = c.model.ffn.clamp.value_or(0);
  };
  return {.read = read, .write = write};
}

/// Row for the rotary keys. Without rope_scaling and rope_parameters, the class uses YaRN.
Row rope_or_yarn() {
  const Row whole = rope({.base = 150000.0, .whole_heads = true});
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const bool given = r.has_value("rope_scaling") || r.has_value("rope_parameters");
    if (!given && r.has("rope_scaling") && !r.has("rope_parameters"))
      r.refuse("rope_scaling",
               "expected an object: for null transformers 4 scales nothing, and version 5 uses YaRN; give "
               "rope_parameters, with rope_type \"default\" for no scaling");
    whole.read(r, c);
    if (given) return;
    model::RopeConfig& rope = c.model.rope;
    rope.scaling = model::RopeScaling::kYarn;
    rope.factor = 32;
    rope.original_positions = 4096;
    rope.truncate = false;
    rope.attention_factor = model::default_attention_factor(rope);
    r.add_note("rope_parameters is absent: using YaRN with factor 32, the default of the class");
  };
  return {.read = read, .write = whole.write};
}

/// Reads keys of published files that the class does not read.
void read_older_names(JsonReader& r, HfConfig& c) {
  r.ignore({"initial_context_length"});
  const auto chosen = r.optional_size({"experts_per_token"});
  if (chosen && *chosen != c.model.moe.top_k)
    r.refuse("experts_per_token", "expected ", c.model.moe.top_k,
             ", the value of num_experts_per_tok, which the class reads; remove the wrong key");
}

}  // namespace

Family gpt_oss() {
  constexpr const char* kExperts = "mlp.experts.";
  return {.class_name = "GptOssForCausalLM",
          .model_type = "gpt_oss",
          .base = {.norm = kRmsNorm,
                   .bias = {.ffn = true},
                   .ffn = {.act = Activation::kQuickGelu, .linear_offset = 1},
                   .moe = {.router_bias = true, .balance = model::Balance::kNone},
                   .attn = {.sinks = true}},
          .rows = joined(llama_rows({201088, 131072, 2880, 36, 64, 2880}, limits(), "rms_norm_eps", 1e-5),
                         {kv_heads(8),
                          head_dim(HeadDim::kWritten, 64),
                          attention_bias(true),
                          experts({"num_local_experts", "num_experts"}, 128),
                          expert_width(),
                          size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 4),
                          {.read = read_older_names},
                          router_losses(),
                          windows({.absent = 128, .full_every = 2}),
                          rope_or_yarn()}),
          .tensors = {.router = "mlp.router",
                      .expert_forms = {{.experts = kExperts, .fused = true, .transposed = true, .interleaved = true},
                                       {.experts = kExperts}}}};
}

}  // namespace ashlar::hf
