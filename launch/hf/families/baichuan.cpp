#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// The 13B model uses ALiBi. Its config.json has model_max_length but no max_position_embeddings.
void read_positions(JsonReader& r, HfConfig& c) {
  const std::optional<int64_t> longest = r.optional_size({"model_max_length"});
  if (longest && !r.has_value("max_position_embeddings")) {
    r.ignore({"max_position_embeddings"});
    c.extras.max_positions = *longest;
    c.model.pos.type = model::PosType::kAlibi;
  } else {
    positions({"max_position_embeddings"}, 4096).read(r, c);
    c.model.rope.dims = c.model.head_dim;
  }
}

void write_positions(Json& j, const HfConfig& c) {
  j["model_max_length"] = c.extras.max_positions;
  if (c.model.pos.type != model::PosType::kAlibi) j["max_position_embeddings"] = c.extras.max_positions;
}

/// Reads z_loss_weight, which must be present, since only Baichuan 2 has this key. Baichuan 1 has the same class name,
/// but does not normalize the rows of its head and is not supported.
Row z_loss_weight() {
  constexpr const char* kKey = "z_loss_weight";
  return {
      .read =
          [=](JsonReader& r, HfConfig& c) {
            if (!r.has(kKey)) {
              r.add_error(str_cat(kKey, " is absent: expected a number, 0 for Baichuan 2 without z-loss; Baichuan 1, ",
                                  "which has the same class name but not this key, is not supported"));
            }
            c.model.loss = {.z_coef = r.number({kKey}, 0), .z_kind = ZKind::kMaxLogit};
          },
      .write =
          [=](Json& j, const HfConfig& c) {
            j[kKey] = c.model.loss.z_kind == ZKind::kMaxLogit ? c.model.loss.z_coef : 0.0;
          }};
}

}  // namespace

Family baichuan() {
  return {.class_name = "BaichuanForCausalLM",
          .model_type = "baichuan",
          .base = {.norm = kRmsNorm, .norm_rows = true},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 125696),
                   size({"hidden_size"}, {FIELD(d_model)}, 4096),
                   size({"num_hidden_layers"}, {FIELD(n_layers)}, 32),
                   size({"num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 32),
                   size({"intermediate_size"}, {FIELD(d_ff)}, 11008),
                   activation("hidden_act", "silu"),
                   number("rms_norm_eps", {FIELD(norm.variant.eps)}, 1e-6),
                   head_dim(HeadDim::kDerived),
                   {.read = read_positions, .write = write_positions},
                   always_zero("attention_dropout", "expected 0: the class has no dropout; remove this key"),
                   demand([](const model::ModelConfig& m) {
                     return std::string(m.tied ? "head.tie = true: BaichuanForCausalLM has a head of its own" : "");
                   }),
                   z_loss_weight()},
          .tensors = {.qkv = "self_attn.W_pack"}};
}

}  // namespace ashlar::hf
