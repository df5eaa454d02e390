#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family smollm3() {
  return {
      .class_name = "SmolLM3ForCausalLM",
      .model_type = "smollm3",
      .base = {.norm = kRmsNorm},
      .rows = joined(
          llama_rows({128256, 32768, 2048, 36, 16, 11008}, "silu", "rms_norm_eps", 1e-6),
          {kv_heads(4),
           head_dim(HeadDim::kWrittenIfNeeded),
           attention_bias(),
           mlp_bias(),
           rope({.base = 2e6, .whole_heads = true}),
           layers_without_rope(false),
           always_false("use_sliding_window",
                        "expected false: windows of this class are not supported; use another model"),
           ignored({"sliding_window", "max_window_layers"}),
           {.read = [](JsonReader& r,
                       HfConfig& c) { read_layer_types(r, c.model, std::nullopt, [](int64_t) { return false; }); }}}),
      .tied_by_default = true};
}

}  // namespace ashlar::hf
