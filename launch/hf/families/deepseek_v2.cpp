#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;

/// topk_method: "greedy", or "group_limited_greedy", in which the experts of the best topk_group of n_group groups are
/// chosen. "greedy" does not read these two keys.
Row choice_of_experts() {
  constexpr const char *kMethod = "topk_method", *kGroups = "n_group", *kTop = "topk_group";
  const auto read = [](JsonReader& r, HfConfig& c) {
    model::MoeConfig& moe = c.model.moe;
    const std::string method = r.text({kMethod}, "greedy");
    const auto groups = r.optional_size({kGroups}), top = r.optional_size({kTop});
    if (method == "greedy") return;
    if (method != "group_limited_greedy")
      return r.refuse(kMethod, "expected greedy or group_limited_greedy; use another model");
    if (!groups || !top)
      return r.refuse(kMethod, "expected the sizes n_group and topk_group with this method; give both keys");
    moe.rule.groups = *groups;
    moe.rule.top_groups = *top;
    if (moe.rule.groups > 1) moe.rule.group_score = GroupScore::kMax;
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const model::MoeConfig& moe = c.model.moe;
    const bool grouped = moe.rule.groups > 1;
    j[kMethod] = grouped ? "group_limited_greedy" : "greedy";
    j[kGroups] = grouped ? Json(moe.rule.groups) : Json(nullptr);
    j[kTop] = grouped ? Json(moe.rule.top_groups) : Json(nullptr);
  };
  return {.read = read, .write = write};
}

/// Reads keys that the class of transformers does not read, but DeepSeek's own code does.
void read_keys_of_deepseek(JsonReader& r, HfConfig& c) {
  if (r.boolean({"norm_topk_prob"}, false))
    r.add_note(str_cat("norm_topk_prob = true has no effect in ", c.family->class_name,
                       ": the weights of experts are not divided by their sum"));
  if (r.text({"scoring_func"}, "softmax") != "softmax")
    r.refuse("scoring_func", "expected softmax, the only score of this class; use another model");
  if (r.number({"moe_layer_freq"}, 1) != 1)
    r.refuse("moe_layer_freq", "expected 1: all layers from first_k_dense_replace on have experts; use another model");
  r.ignore({"ep_size", "aux_loss_alpha", "seq_aux", "output_router_logits", "router_aux_loss_coef"});
}

/// The number of chosen experts, for which the class has no default.
Row top_k() {
  constexpr const char* kKey = "num_experts_per_tok";
  const auto read = [](JsonReader& r, HfConfig& c) {
    const auto given = r.optional_size({kKey});
    if (!given) r.refuse(kKey, "expected the number of experts that process a token; add this key");
    c.model.moe.top_k = given.value_or(1);
  };
  return {.read = read, .write = [](Json& j, const HfConfig& c) { j[kKey] = c.model.moe.top_k; }};
}

}  // namespace

Family deepseek_v2() {
  return {.class_name = "DeepseekV2ForCausalLM",
          .model_type = "deepseek_v2",
          .base = {.norm = kRmsNorm,
                   .moe = {.rule = {.renormalize = false}, .balance = model::Balance::kNone},
                   .rope = kInterleaved},
          .rows = joined(
              llama_rows({102400, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
              joined({heads_divide_width(),
                      kv_heads(),
                      latent_sizes({1536, 512, 128, 64, 128}),
                      attention_bias(),
                      always_false("mlp_bias",
                                   "expected false: biases of dense layers and shared experts alone are not supported; "
                                   "use another model"),
                      experts({"n_routed_experts", "num_experts"}, 64),
                      size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 1407),
                      top_k(),
                      shared_experts("n_shared_experts", 2),
                      demand(has_shared_experts),
                      first_layers(0),
                      choice_of_experts(),
                      number("routed_scaling_factor", {FIELD(moe.rule.scale)}, 1.0),
                      {.read = read_keys_of_deepseek}},
                     latent_rope(10000.0))),
          .tensors = {.expert_forms = {kEachExpert, kFusedExperts}, .shared = "mlp.shared_experts."}};
}

}  // namespace ashlar::hf
