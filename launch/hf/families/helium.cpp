#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

std::string heads_are_the_width(const model::ModelConfig& m) {
  if (m.q_width() == m.d_model) return "";
  return str_cat("model.head_dim = ", m.head_dim, ": HeliumForCausalLM needs n_heads * head_dim = d_model");
}

}  // namespace

Family helium() {
  return {.class_name = "HeliumForCausalLM",
          .model_type = "helium",
          .base = {.norm = kRmsNorm, .rope = kInterleaved},
          .rows = joined(llama_rows({48000, 4096, 2560, 24, 20, 7040}, "silu", "rms_norm_eps", 1e-8),
                         {kv_heads(20), head_dim(HeadDim::kWritten, 128), demand(heads_are_the_width),
                          flag("attention_bias", {FIELD(bias.qkv)}, false), mlp_bias(),
                          rope({.base = 100000.0, .whole_heads = true})})};
}

}  // namespace ashlar::hf
