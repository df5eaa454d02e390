#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

void multi_query(model::ModelConfig& m, bool one) { m.n_kv_heads = one ? 1 : m.n_heads; }

void check_kv_heads(JsonReader& r, HfConfig& c) {
  const auto given = r.optional_size({"num_key_value_heads"});
  if (given && *given != c.model.n_kv_heads)
    r.refuse("num_key_value_heads", "expected ", c.model.n_kv_heads,
             ", the number that multi_query sets; remove this key");
}

}  // namespace

Family gpt_bigcode() {
  return {.class_name = "GPTBigCodeForCausalLM",
          .model_type = "gpt_bigcode",
          .base = {.norm = kLayerNorm,
                   .bias = kAllBiasesButHead,
                   .ffn = kUngated,
                   .pos = {.type = model::PosType::kLearned}},
          .rows = joined(
              gpt_rows({50257, 1024, 768, 12, 12, 0}, 0.1),
              {flag("multi_query", true, multi_query, [](const model::ModelConfig& m) { return m.n_kv_heads == 1; }),
               {.read = check_kv_heads},
               scale_attn_weights()}),
          .tied_by_default = true,
          .tensors = gpt_tensors(
              {.positions = "wpe",
               .qkv = "attn.c_attn",
               .attn_out = "attn.c_proj",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj",
               .qkv_groups = 0,
               .buffers = {".attn.bias", ".attn.masked_bias", ".attn.causal_mask", ".attn.embed_positions"}})};
}

}  // namespace ashlar::hf
