#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

void rope_interleave(model::ModelConfig& m, bool interleaved) {
  m.rope.style = interleaved ? RopeStyle::kInterleaved : RopeStyle::kHalf;
}

}  // namespace

Family youtu() {
  return {
      .class_name = "YoutuForCausalLM",
      .model_type = "youtu",
      .base = {.norm = kRmsNorm},
      .rows = joined(llama_rows({128256, 131072, 2048, 32, 16, 6144}, "silu", "rms_norm_eps", 1e-6),
                     joined({kv_heads(16), latent_sizes({1536, 512, 128, 64, 128}), attention_bias(),
                             flag("rope_interleave", true, rope_interleave,
                                  [](const model::ModelConfig& m) { return m.rope.style == RopeStyle::kInterleaved; })},
                            joined(latent_rope(10000.0), {ignored({"embedding_initializer_range"})}))),
      .tied_by_default = true};
}

}  // namespace ashlar::hf
