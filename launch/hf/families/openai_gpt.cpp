#include <nlohmann/json.hpp>
#include <utility>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// afn, the activation. The class has names of its own: "gelu" is the tanh form here.
Row afn() {
  constexpr std::pair<const char*, Activation> kNames[] = {{"gelu", Activation::kGeluTanh},
                                                           {"relu", Activation::kRelu},
                                                           {"silu", Activation::kSilu},
                                                           {"swish", Activation::kSilu}};
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const std::string name = r.text({"afn"}, "gelu");
                for (const auto& [spelling, act] : kNames) {
                  if (name != spelling) continue;
                  c.model.ffn.act = act;
                  return;
                }
                r.refuse("afn", "expected gelu (its tanh form), relu, silu or swish; use a model with one of these");
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                for (const auto& [spelling, act] : kNames) {
                  if (act != c.model.ffn.act || j.contains("afn")) continue;
                  j["afn"] = spelling;
                }
              }};
}

}  // namespace

Family openai_gpt() {
  return {.class_name = "OpenAIGPTLMHeadModel",
          .model_type = "openai-gpt",
          .base = {.norm = {.variant = {.type = NormType::kLayerNorm},
                            .affine = model::NormAffine::kScaleBias,
                            .placement = model::NormPlacement::kPost,
                            .final = false},
                   .bias = kAllBiasesButHead,
                   .ffn = kUngated,
                   .pos = {.type = model::PosType::kLearned}},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 40478),
                   positions({"n_positions", "max_position_embeddings"}, 512),
                   size({"n_embd", "hidden_size"}, {FIELD(d_model)}, 768),
                   size({"n_layer", "num_hidden_layers"}, {FIELD(n_layers)}, 12),
                   size({"n_head", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 12),
                   head_dim(HeadDim::kDerived), ffn_of_four_widths(), afn(),
                   number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
                   number("embd_pdrop", {FIELD(dropout.embed)}, 0.1), number("attn_pdrop", {FIELD(dropout.attn)}, 0.1),
                   number("resid_pdrop", {FIELD(dropout.resid)}, 0.1)},
          .tied_by_default = true,
          .tensors = {.prefix = "transformer.",
                      .tokens = "tokens_embed",
                      .positions = "positions_embed",
                      .layers = "h.",
                      .norm1 = "ln_1",
                      .norm2 = "ln_2",
                      .qkv = "attn.c_attn",
                      .attn_out = "attn.c_proj",
                      .up = "mlp.c_fc",
                      .down = "mlp.c_proj",
                      .transposed = true,
                      .buffers = {".attn.bias", ".attn.masked_bias"}}};
}

}  // namespace ashlar::hf
