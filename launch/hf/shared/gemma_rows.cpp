#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Row no_bidirectional_attention() {
  return {.read = [](JsonReader& r, HfConfig&) {
    constexpr const char* kKey = "use_bidirectional_attention";
    if (r.raw(kKey) != nullptr && r.boolean({kKey}, false))
      r.refuse(kKey, "expected false or null: only causal attention is supported; use another model");
  }};
}

Row gemma_hidden_activation() {
  const Row named = activation("hidden_activation", "gelu_pytorch_tanh");
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                named.read(r, c);
                if (!r.has_value("hidden_act")) return;
                HfConfig other = c;
                activation("hidden_act", "").read(r, other);
                if (other.model.ffn.act != c.model.ffn.act)
                  r.add_note(str_cat(r.shown("hidden_act"), " has no effect in ", c.family->class_name));
              },
          .write = named.write};
}

Row query_pre_attn_scalar() {
  constexpr const char* kKey = "query_pre_attn_scalar";
  return {.read = [=](JsonReader& r,
                      HfConfig& c) { c.model.attn.scale = 1.0 / std::sqrt(static_cast<double>(r.size({kKey}, 256))); },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double scale = c.model.attn.scale;
                j[kKey] = std::max<int64_t>(std::llround(1.0 / (scale * scale)), 1);
              }};
}

Row optional_number(const char* key, OptionalNumberField field, std::optional<double> absent) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                if (!r.has(key) && absent)
                  r.add_note(str_cat(key, " is absent: using ", *absent, ", the default of the class"));
                field(c.model) = r.has(key) ? r.optional_number({key}) : absent;
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                model::ModelConfig m = c.model;
                const std::optional<double> cap = field(m);
                j[key] = cap ? Json(*cap) : Json(nullptr);
              }};
}

Rows gemma_rows(const Sizes& sizes, int64_t kv) {
  return joined(llama_rows(sizes, gemma_hidden_activation(), "rms_norm_eps", 1e-6),
                {embedding_scale(), heads_divide_width(), kv_heads(kv), size({"head_dim"}, {FIELD(head_dim)}, 256),
                 attention_bias(), no_bidirectional_attention()});
}

Rows gemma2_rows() {
  return joined(gemma_rows({256000, 8192, 2304, 26, 8, 9216}, 4),
                {query_pre_attn_scalar(), optional_number("attn_logit_softcapping", FIELD(attn.softcap), 50.0),
                 optional_number("final_logit_softcapping", FIELD(softcap), 30.0),
                 windows({.absent = 4096, .full_every = 2}), rope({.whole_heads = true})});
}

}  // namespace ashlar::hf
