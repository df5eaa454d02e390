#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::Topology;

/// In a parallel block, hidden_dropout acts on the sum of both branches. In a serial block, attention_dropout acts on
/// the output of attention. Neither equals dropout.resid or dropout.attn, so both must be 0.
constexpr const char* kNoDropout = "expected 0: this dropout is not supported; set it to 0, which changes no logit";

void read_block(JsonReader& r, HfConfig& c) {
  ModelConfig& m = c.model;
  const bool new_architecture = r.boolean({"new_decoder_architecture"}, false);
  const bool multi_query = r.boolean({"multi_query"}, true);
  const bool is_parallel = r.boolean({"parallel_attn"}, true);
  const auto kv = r.optional_size({"num_kv_heads"});
  const auto norms = r.optional_size({"num_ln_in_parallel_attn"});
  if (new_architecture) {
    m.n_kv_heads = kv.value_or(m.n_heads);
    if (!is_parallel) {
      r.refuse("parallel_attn",
               "expected true: new_decoder_architecture = true is always parallel; set parallel_attn to true");
    }
    if (norms.value_or(2) > 2) r.refuse("num_ln_in_parallel_attn", "expected 1 or 2 norms; correct this key");
    m.block = {.topology = Topology::kParallel, .parallel_norms = norms.value_or(2) == 1 ? 1 : 2};
    return;
  }
  // With multi_query the class ignores num_kv_heads: the published 7B model has num_kv_heads = 71 but one KV head.
  m.n_kv_heads = multi_query ? 1 : m.n_heads;
  if (!multi_query && kv && *kv != m.n_heads) {
    r.refuse("num_kv_heads",
             "multi_query = false means as many KV heads as query heads; remove num_kv_heads, or set it to ",
             m.n_heads);
  }
  if (norms.value_or(1) != 1) {
    r.refuse("num_ln_in_parallel_attn",
             "expected 1 or null: without new_decoder_architecture a parallel block has one norm; remove this key");
  }
  if (is_parallel) m.block = kParallel;
}

void write_block(Json& j, const HfConfig& c) {
  const ModelConfig& m = c.model;
  const bool is_parallel = m.block.topology == Topology::kParallel;
  const bool old_kv = m.n_kv_heads == 1 || m.n_kv_heads == m.n_heads;
  const bool old_architecture = !is_parallel || (m.block.parallel_norms == 1 && old_kv);
  j["new_decoder_architecture"] = !old_architecture;
  j["multi_query"] = !old_architecture || m.n_kv_heads == 1;
  j["parallel_attn"] = is_parallel;
  j["num_kv_heads"] = old_architecture && m.n_kv_heads != 1 ? m.n_heads : m.n_kv_heads;
  if (!old_architecture) j["num_ln_in_parallel_attn"] = m.block.parallel_norms;
}

/// Falcon divides the sum of score and ALiBi bias by sqrt(head_dim), so the bias is scaled too.
void alibi(ModelConfig& m, bool alibi) {
  if (!alibi) return;
  m.pos = {.type = model::PosType::kAlibi, .alibi_scale = 1.0 / std::sqrt(static_cast<double>(m.head_dim))};
  m.rope = {};
}

}  // namespace

Family falcon() {
  return {.class_name = "FalconForCausalLM",
          .model_type = "falcon",
          .base = {.norm = kLayerNorm, .ffn = kUngated},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 65024),
                   positions({"max_position_embeddings"}, 2048),
                   size({"hidden_size", "n_embed"}, {FIELD(d_model)}, 4544),
                   size({"num_hidden_layers", "n_layer"}, {FIELD(n_layers)}, 32),
                   size({"num_attention_heads", "n_head"}, {FIELD(n_heads)}, 71),
                   head_dim(HeadDim::kDerived),
                   size_or({"ffn_hidden_size"}, FIELD(d_ff), four_widths),
                   activation("activation", "gelu"),
                   always_zero("attention_dropout", kNoDropout),
                   number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
                   {.read = read_block, .write = write_block},
                   flag("bias", {FIELD(bias.qkv), FIELD(bias.attn_out), FIELD(bias.ffn)}, false),
                   always_false("apply_residual_connection_post_layernorm",
                                "expected false: only a residual before the norm is supported; use another model"),
                   ignored({"ff_factor"}),  // the published 11B has it; the class reads ffn_hidden_size
                   always_zero("hidden_dropout", kNoDropout),
                   rope({.whole_heads = true}),
                   flag("alibi", false, alibi,
                        [](const model::ModelConfig& m) { return m.pos.type == model::PosType::kAlibi; })},
          .tied_by_default = true,
          .tensors = {.prefix = "transformer.",
                      .tokens = "word_embeddings",
                      .norm_final = "ln_f",
                      .layers = "h.",
                      .norm1_of_two = "ln_attn",
                      .norm2_of_two = "ln_mlp",
                      .qkv = "self_attention.query_key_value",
                      .attn_out = "self_attention.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h",
                      .qkv_groups = 0,
                      .buffers = {"rotary_emb.inv_freq", "maybe_rotary.inv_freq"}}};
}

}  // namespace ashlar::hf
