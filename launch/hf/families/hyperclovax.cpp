#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::NormPlacement;

/// attention_multiplier, the scale of the attention scores. Null: 1 / sqrt(head_dim).
Row attention_multiplier() {
  constexpr const char* kKey = "attention_multiplier";
  return {.read = [](JsonReader& r,
                     HfConfig& c) { c.model.attn.scale = r.optional_number({kKey}).value_or(c.model.attn.scale); },
          .write = [](Json& j, const HfConfig& c) { j[kKey] = c.model.attn.scale; }};
}

void use_post_norm(model::ModelConfig& m, bool both) {
  m.norm.placement = both ? NormPlacement::kSandwich : NormPlacement::kPre;
}

}  // namespace

Family hyperclovax() {
  return {
      .class_name = "HyperCLOVAXForCausalLM",
      .model_type = "hyperclovax",
      .base = {.norm = kRmsNorm},
      .rows = joined(joined(granite_rows(), granite_multipliers()),
                     {attention_multiplier(),
                      flag("use_post_norm", true, use_post_norm,
                           [](const model::ModelConfig& m) { return m.norm.placement == NormPlacement::kSandwich; }),
                      number("logits_scaling", {FIELD(logit_scale)}, 1.0)}),
      .tensors = {.norm1_out = "post_norm1", .norm2_out = "post_norm2"}};
}

}  // namespace ashlar::hf
