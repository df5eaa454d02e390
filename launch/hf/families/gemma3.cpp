#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

void refuse_scores_cap(JsonReader& r, HfConfig&) {
  if (r.optional_number({"attn_logit_softcapping"}))
    r.refuse("attn_logit_softcapping",
             "expected null: Gemma3ForCausalLM does not cap attention scores; remove this key");
}

/// Hugging Face's Gemma3 config also stores sliding_window_pattern as _sliding_window_pattern. Rejects a config where
/// the two differ.
void compare_patterns(JsonReader& r, HfConfig&) {
  const auto own = r.optional_size({"_sliding_window_pattern"}), plain = r.optional_size({"sliding_window_pattern"});
  if (own && plain && own != plain)
    r.refuse("_sliding_window_pattern", "expected ", *plain,
             ", the value of sliding_window_pattern; remove one of the two keys");
}

}  // namespace

Family gemma3() {
  return {.class_name = "Gemma3ForCausalLM",
          .model_type = "gemma3_text",
          .base = {.norm = rms_norm(model::NormPlacement::kSandwich, true), .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(gemma_rows({262208, 131072, 2304, 26, 8, 9216}, 4),
                         {qk_norm_eps(),
                          query_pre_attn_scalar(),
                          {.read = refuse_scores_cap},
                          optional_number("final_logit_softcapping", FIELD(softcap), std::nullopt),
                          windows({.absent = 4096, .full_every = 6, .every_key = "sliding_window_pattern"}),
                          {.read = compare_patterns},
                          rope_by_kind({.base = 1e6, .local_base = 1e4, .local_key = "rope_local_base_freq"})}),
          .tied_by_default = true,
          .tensors = {.norm2 = "pre_feedforward_layernorm"}};
}

}  // namespace ashlar::hf
