#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Accepts rope_scaling = {"rope_type": "gptj"}, which some files have. This type means interleaved pairs. The
/// class does not read rope_scaling and always interleaves.
void ignore_interleaved_scaling(JsonReader& r, HfConfig&) {
  const nlohmann::json* const scaling = r.peek("rope_scaling");
  for (const char* key : {"rope_type", "type"})
    if (scaling != nullptr && *scaling == nlohmann::json{{key, "gptj"}}) r.ignore({"rope_scaling"});
}

}  // namespace

Family gptj() {
  return {.class_name = "GPTJForCausalLM",
          .model_type = "gptj",
          .base = {.norm = kLayerNorm,
                   .block = kParallel,
                   .bias = {.ffn = true, .lm_head = true},
                   .ffn = kUngated,
                   .rope = kInterleaved},
          .rows = joined(gpt_rows({50400, 2048, 4096, 28, 16, 0}, 0.0),
                         {rotary_dim(),
                          {.read = ignore_interleaved_scaling},
                          // The published file has these keys; the class does not read them.
                          ignored({"rotary", "scale_attn_weights"})}),
          .tensors = gpt_tensors({.q = "attn.q_proj",
                                  .k = "attn.k_proj",
                                  .v = "attn.v_proj",
                                  .attn_out = "attn.out_proj",
                                  .up = "mlp.fc_in",
                                  .down = "mlp.fc_out",
                                  .buffers = {".attn.bias", ".attn.masked_bias", ".attn.embed_positions"}})};
}

}  // namespace ashlar::hf
