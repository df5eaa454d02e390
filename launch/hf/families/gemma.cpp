// The embedding is multiplied by sqrt(d_model). Norms multiply by 1 + gain.
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// The first published files have hidden_act = "gelu", which here means the tanh form. hidden_activation was added
/// later.
Row two_activation_keys() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    const Row named = activation("hidden_activation", "gelu_pytorch_tanh"),
              old = activation("hidden_act", "gelu_pytorch_tanh");
    const bool has_new = r.has_value("hidden_activation"), has_old = r.has_value("hidden_act");
    r.ignore({"hidden_activation", "hidden_act"});
    if (has_old || !has_new) old.read(r, c);
    if (c.model.ffn.act == Activation::kGeluErf) c.model.ffn.act = Activation::kGeluTanh;
    if (!has_new) return;
    const Activation given = c.model.ffn.act;
    named.read(r, c);
    if (has_old && given != c.model.ffn.act) {
      r.refuse("hidden_act", "expected ", name_of(c.model.ffn.act),
               ", the activation that hidden_activation names; remove one key");
    }
  };
  const auto write = [](Json& j, const HfConfig& c) {
    activation("hidden_activation", "").write(j, c);
    if (c.model.ffn.act == Activation::kGeluTanh) j["hidden_activation"] = "gelu_pytorch_tanh";
    j["hidden_act"] = j["hidden_activation"];  // transformers 5 reads only hidden_act
  };
  return {.read = read, .write = write};
}

}  // namespace

Family gemma() {
  return {.class_name = "GemmaForCausalLM",
          .model_type = "gemma",
          .base = {.norm = rms_norm(model::NormPlacement::kPre, true)},
          .rows = joined(llama_rows({256000, 8192, 3072, 28, 16, 24576}, two_activation_keys(), "rms_norm_eps", 1e-6),
                         {embedding_scale(), kv_heads(16), size({"head_dim"}, {FIELD(head_dim)}, 256), attention_bias(),
                          rope({.whole_heads = true}), no_bidirectional_attention()}),
          .tied_by_default = true};
}

}  // namespace ashlar::hf
