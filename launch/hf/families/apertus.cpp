#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Row for the rotary keys. If a file has neither rope_scaling nor rope_parameters, the class uses llama3 scaling and a
/// base of 12000000, and does not read rope_theta.
Row rope_or_llama3() {
  constexpr double kBase = 12000000.0;
  const Row whole = rope({.base = kBase, .whole_heads = true});
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool given = r.has_value("rope_scaling") || r.has_value("rope_parameters");
                whole.read(r, c);
                if (given) return;
                model::RopeConfig& rope = c.model.rope;
                if (rope.base != kBase)
                  r.refuse("rope_theta",
                           "expected 12000000, since without rope_scaling and rope_parameters the class ignores "
                           "rope_theta and uses 12000000; give rope_parameters");
                rope.scaling = model::RopeScaling::kLlama3;
                rope.factor = 8;
                rope.low_freq_factor = 1;
                rope.high_freq_factor = 4;
                rope.original_positions = 8192;
                r.add_note("rope_parameters is absent: using llama3 with factor 8, the default of the class");
              },
          .write = whole.write};
}

}  // namespace

Family apertus() {
  return {.class_name = "ApertusForCausalLM",
          .model_type = "apertus",
          .base = {.norm = kRmsNorm, .ffn = kUngated, .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(
              llama_rows({131072, 65536, 4096, 32, 32, 14336}, "xielu", "rms_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), qk_norm_eps(), rope_or_llama3()}),
          .tensors = {.norm1 = "attention_layernorm", .norm2 = "feedforward_layernorm"}};
}

}  // namespace ashlar::hf
