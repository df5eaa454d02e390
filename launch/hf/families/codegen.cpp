#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

void check_heads(JsonReader& r, HfConfig& c) {
  if (c.model.n_heads % 4 == 0) return;
  r.add_error(str_cat("n_head = ", c.model.n_heads,
                      ": expected a multiple of 4, since the class stores heads in 4 groups; correct n_head"));
}

std::string heads_limit(const model::ModelConfig& m) {
  if (m.n_heads % 4 == 0) return "";
  return str_cat("model.n_heads = ", m.n_heads, ": CodeGenForCausalLM needs a multiple of 4");
}

}  // namespace

Family codegen() {
  return {.class_name = "CodeGenForCausalLM",
          .model_type = "codegen",
          .base = {.norm = kLayerNorm,
                   .block = kParallel,
                   .bias = {.ffn = true, .lm_head = true},
                   .ffn = kUngated,
                   .rope = kInterleaved},
          .rows = joined(
              gpt_rows({50400, 2048, 4096, 28, 16, 0}, 0.0),
              {rotary_dim(), {.read = check_heads, .limit = heads_limit}, ignored({"rotary", "scale_attn_weights"})}),
          .tensors = gpt_tensors(
              {.qkv = "attn.qkv_proj",
               .attn_out = "attn.out_proj",
               .up = "mlp.fc_in",
               .down = "mlp.fc_out",
               .qkv_groups = 4,
               .qkv_values_first = true,
               .buffers = {".attn.bias", ".attn.masked_bias", ".attn.causal_mask", ".attn.embed_positions"}})};
}

}  // namespace ashlar::hf
