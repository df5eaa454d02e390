// Queries and keys rotate by the negative angle and are normalised after the rotation. No norm has a gain.
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

Row logits_cap() {
  constexpr const char* kKey = "final_logit_softcapping";
  return {
      .read = [](JsonReader& r,
                 HfConfig& c) { c.model.softcap = r.has(kKey) ? r.optional_number({kKey}) : std::optional(15.0); },
      .write = [](Json& j, const HfConfig& c) { j[kKey] = c.model.softcap ? Json(*c.model.softcap) : Json(nullptr); }};
}

}  // namespace

Family nanochat() {
  return {.class_name = "NanoChatForCausalLM",
          .model_type = "nanochat",
          .base = {.norm = {.variant = {.type = NormType::kRmsNorm}, .affine = model::NormAffine::kNone, .embed = true},
                   .ffn = kUngated,
                   .rope = {.reversed = true},
                   .qk_norm = {.kind = model::QkNorm::kL2, .order = model::QkNormOrder::kAfterRope}},
          .rows = joined(llama_rows({50304, 2048, 768, 12, 6, 8192}, "relu2", "rms_norm_eps", 1e-6),
                         {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), qk_norm_eps(), logits_cap(),
                          attention_bias(), rope({.whole_heads = true})}),
          .tensors = {.up = "mlp.fc1", .down = "mlp.fc2"}};
}

}  // namespace ashlar::hf
