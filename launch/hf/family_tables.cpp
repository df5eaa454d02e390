#include "launch/hf/family_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/hf/class_rows.h"

// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {

Row qk_norm_eps() {
  return {.read = [](JsonReader&, HfConfig& c) { c.model.qk_norm.eps = c.model.norm.variant.eps; }};
}

namespace {

using model::ModelConfig;
using model::PosType;
using model::Topology;

ClassTable gpt2() {
  return {.base = {.norm = kLayerNorm,
                   .bias = {.qkv = true, .attn_out = true, .ffn = true},
                   .ffn = kUngated,
                   .pos = {.type = PosType::kLearned},
                   .init = {.scheme = model::InitScheme::kGpt2}},
          .rows = joined(gpt_rows({50257, 1024, 768, 12, 12, 0}, 0.1),
                         {scale_attn_weights(),
                          always_false("scale_attn_by_inverse_layer_idx",
                                       "attn.scale is one value for all layers; expected false", true),
                          always_false("add_cross_attention", "cross-attention is not an axis; expected false")})};
}

ClassTable gptj() {
  // Some files say by it that pairs are interleaved, as they always are; the class itself does not read it.
  const Row interleaved = {.read = [](JsonReader& r, HfConfig&) {
    const nlohmann::json* const scaling = r.peek("rope_scaling");
    for (const char* key : {"rope_type", "type"}) {
      if (scaling != nullptr && *scaling == nlohmann::json{{key, "gptj"}}) r.ignore({"rope_scaling"});
    }
  }};
  return {.base = {.norm = kLayerNorm,
                   .block = kParallel,
                   .bias = {.ffn = true, .lm_head = true},
                   .ffn = kUngated,
                   .rope = kInterleaved},
          // "rotary": true in the published file; the class always rotates.
          .rows = joined(gpt_rows({50400, 2048, 4096, 28, 16, 0}, 0.0),
                         {rotary_dim(), interleaved, ignored({"rotary", "scale_attn_weights"})})};
}

ClassTable gpt_neox() {
  return {.base = {.norm = kLayerNorm, .bias = {.ffn = true}, .ffn = kUngated},
          .rows = joined(usual_rows({50432, 2048, 6144, 44, 64, 24576}, "gelu", "layer_norm_eps", 1e-5),
                         {head_dim(HeadDim::kDerived), parallel_block("use_parallel_residual", 2, true),
                          flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, true),
                          // It acts after the embedding and on both branches.
                          number("hidden_dropout", {AXIS(dropout.resid), AXIS(dropout.embed)}, 0.0),
                          rope({.base_key = "rotary_emb_base", .fraction_key = "rotary_pct", .fraction = 0.25}),
                          unread_rope_keys("rope_theta", "partial_rotary_factor"),
                          // The published 20B file has the BERT names of its dropouts; the class does not read them.
                          ignored({"attention_probs_dropout_prob", "hidden_dropout_prob"})})};
}

ClassTable llama() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({32000, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
                         {heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten),
                          flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false),
                          flag("mlp_bias", {AXIS(bias.ffn)}, false), rope({.whole_heads = true}),
                          always_false("rope_interleaved", "the class rotates halves; expected false")})};
}

/// The windows of Qwen 2 and 3: use_sliding_window switches them on, for layers from max_window_layers on or by
/// layer_types.
Row qwen2_windows() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    const bool uses = r.boolean({"use_sliding_window"}, false);
    const nlohmann::json* first = r.raw("max_window_layers");
    const int64_t full_layers = first != nullptr && first->is_number_integer() ? first->get<int64_t>() : 28;
    const std::optional<int64_t> window = r.has("sliding_window") ? r.optional_size({"sliding_window"}) : 4096;
    read_layer_types(r, c.model, uses ? window : std::nullopt, [=](int64_t layer) { return layer >= full_layers; });
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto slides = std::find_if(layers.begin(), layers.end(), [](int64_t w) { return w > 0; });
    j["use_sliding_window"] = slides != layers.end();
    if (slides == layers.end()) return;
    j["sliding_window"] = *slides;
    j["max_window_layers"] = slides - layers.begin();
    j["layer_types"] = layer_types_of(layers);
  };
  return {.read = read, .write = write, .limit = sliding_alone};
}

ClassTable qwen2() {
  return {.base = {.norm = kRmsNorm, .bias = {.qkv = true}},
          .rows = joined(
              usual_rows({151936, 32768, 4096, 32, 32, 22016}, "silu", "rms_norm_eps", 1e-6),
              {kv_heads(32), head_dim(HeadDim::kWrittenIfNeeded), qwen2_windows(), rope({.whole_heads = true})})};
}

ClassTable qwen3() {
  return {.base = {.norm = kRmsNorm, .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(usual_rows({151936, 32768, 4096, 32, 32, 22016}, "silu", "rms_norm_eps", 1e-6),
                         {kv_heads(32), head_dim(HeadDim::kWritten, 128),
                          flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false), qk_norm_eps(),
                          qwen2_windows(), rope({.whole_heads = true})})};
}

ClassTable phi() {
  return {
      .base = {.norm = kLayerNorm,
               .block = kParallel,
               .bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = true},
               .ffn = kUngated},
      .rows = joined(usual_rows({51200, 2048, 2048, 24, 32, 8192}, "gelu_new", "layer_norm_eps", 1e-5),
                     {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), number("embd_pdrop", {AXIS(dropout.embed)}, 0.0),
                      number("resid_pdrop", {AXIS(dropout.resid)}, 0.0),
                      always_false("qk_layernorm", "attn.qk_norm is supported for none only; expected false", true),
                      // In files of the class's first releases, which it does not read.
                      ignored({"attention_bias", "rotary_dim"}), rope({.fraction = 0.5})})};
}

ClassTable phi3() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({32064, 4096, 3072, 32, 32, 8192}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded),
                          // Read by longrope alone, which has it in its dictionary too.
                          ignored("original_max_position_embeddings",
                                  [](const HfConfig& c) {
                                    const bool scaled = c.model.rope.scaling == model::RopeScaling::kLongrope;
                                    return Json(scaled ? c.model.rope.original_positions : c.extras.max_positions);
                                  }),
                          windows({.types = false}), number("resid_pdrop", {AXIS(dropout.resid)}, 0.0),
                          without_effect("embd_pdrop"), rope({}),
                          always_false("attention_bias", "the class has no biases; expected false"),
                          always_false("mlp_bias", "the class has no biases; expected false"),
                          always_false("lm_head_bias", "the class has no biases; expected false")})};
}

ClassTable stablelm() {
  return {.base = {.norm = kLayerNorm},
          .rows = joined(
              usual_rows({50304, 4096, 2560, 32, 32, 6912}, "silu", "layer_norm_eps", 1e-5),
              {kv_heads(32), head_dim(HeadDim::kDerived), parallel_block("use_parallel_residual", 1, false),
               flag("use_qkv_bias", {AXIS(bias.qkv)}, false),
               always_false("qk_layernorm", "attn.qk_norm is supported for none only; expected false", true),
               always_zero("hidden_dropout", "it acts on the FFN branch alone, dropout.resid on both; expected 0"),
               rope({.fraction = 0.25})})};
}

void read_falcon_block(JsonReader& r, HfConfig& c) {
  ModelConfig& m = c.model;
  const bool new_architecture = r.boolean({"new_decoder_architecture"}, false);
  const bool multi_query = r.boolean({"multi_query"}, true);
  const bool is_parallel = r.boolean({"parallel_attn"}, true);
  const auto kv = r.optional_size({"num_kv_heads"});
  const auto norms = r.optional_size({"num_ln_in_parallel_attn"});
  if (new_architecture) {
    m.n_kv_heads = kv.value_or(m.n_heads);
    if (!is_parallel) {
      r.refuse("parallel_attn", "new_decoder_architecture = true is parallel always; expected true");
    }
    if (norms.value_or(2) > 2) r.refuse("num_ln_in_parallel_attn", "block.parallel_norms is 1 or 2");
    m.block = {.topology = Topology::kParallel, .parallel_norms = norms.value_or(2) == 1 ? 1 : 2};
    return;
  }
  // One KV head whatever num_kv_heads says: the published 7B says 71.
  m.n_kv_heads = multi_query ? 1 : m.n_heads;
  if (!multi_query && kv && *kv != m.n_heads) {
    r.refuse("num_kv_heads", "multi_query = false of the old architecture has one KV head a head; expected ",
             m.n_heads);
  }
  if (norms.value_or(1) != 1) {
    r.refuse("num_ln_in_parallel_attn", "the old architecture has one norm for both branches; expected 1 or null");
  }
  if (is_parallel) m.block = kParallel;
}

void write_falcon_block(Json& j, const HfConfig& c) {
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

ClassTable falcon() {
  // In a parallel block hidden_dropout drops the sum of both branches, in a serial one attention_dropout drops the
  // attention branch: neither is dropout.resid or dropout.attn.
  constexpr const char* kNoDropout = "what it drops in this class is no dropout axis; expected 0";
  return {.base = {.norm = kLayerNorm, .ffn = kUngated},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 65024),
                   positions({"max_position_embeddings"}, 2048),
                   size({"hidden_size", "n_embed"}, {AXIS(d_model)}, 4544),
                   size({"num_hidden_layers", "n_layer"}, {AXIS(n_layers)}, 32),
                   size({"num_attention_heads", "n_head"}, {AXIS(n_heads)}, 71),
                   head_dim(HeadDim::kDerived),
                   size_or({"ffn_hidden_size"}, AXIS(d_ff), four_widths),
                   activation("activation", "gelu"),
                   always_zero("attention_dropout", kNoDropout),
                   number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5),
                   {.read = read_falcon_block, .write = write_falcon_block},
                   flag("bias", {AXIS(bias.qkv), AXIS(bias.attn_out), AXIS(bias.ffn)}, false),
                   always_false("apply_residual_connection_post_layernorm",
                                "norm.placement is supported for pre only; expected false"),
                   ignored({"ff_factor"}),  // of the published 11B; the class reads ffn_hidden_size
                   always_zero("hidden_dropout", kNoDropout),
                   rope({.whole_heads = true}),
                   falcon_positions()}};
}

ClassTable table_of(Family family) {
  switch (family) {
    case Family::kGpt2: return gpt2();
    case Family::kOpenAiGpt: return openai_gpt();
    case Family::kGptJ: return gptj();
    case Family::kGptNeoX: return gpt_neox();
    case Family::kLlama: return llama();
    case Family::kQwen2: return qwen2();
    case Family::kPhi: return phi();
    case Family::kPhi3: return phi3();
    case Family::kPersimmon: return persimmon();
    case Family::kStableLm: return stablelm();
    case Family::kFalcon: return falcon();
    case Family::kBloom: return bloom();
    case Family::kQwen3: return qwen3();
    case Family::kOlmo2: return olmo2();
    case Family::kOlmo3: return olmo3();
    case Family::kGlm: return glm();
    case Family::kGlm4: return glm4();
    case Family::kGranite: return granite();
    case Family::kGraniteSwa: return granite_swa();
    case Family::kHyperClovaX: return hyperclovax();
    case Family::kCohere: return cohere();
    case Family::kChameleon: return chameleon();
    case Family::kCohere2: return cohere2();
    case Family::kHelium: return helium();
    case Family::kHunYuan: return hunyuan();
    case Family::kSeedOss: return seed_oss();
    case Family::kErnie45: return ernie();
    case Family::kMistral: return mistral();
    case Family::kMinistral: return ministral();
    case Family::kMinistral3: return ministral3();
    case Family::kStarcoder2: return starcoder2();
    case Family::kGptNeo: return gpt_neo();
    case Family::kMpt: return mpt();
    case Family::kOlmo: return olmo();
    case Family::kSmolLm3: return smollm3();
    case Family::kGemma: return gemma();
    case Family::kGemma2: return gemma2();
    case Family::kGemma3: return gemma3();
    case Family::kGemma4: return gemma4();
    case Family::kVaultGemma: return vaultgemma();
    case Family::kExaone4: return exaone4();
    case Family::kCwm: return cwm();
    case Family::kNemotron: return nemotron();
    case Family::kNanoChat: return nanochat();
    case Family::kArcee: return arcee();
    case Family::kJais2: return jais2();
    case Family::kOpt: return opt();
    case Family::kBioGpt: return biogpt();
    case Family::kXglm: return xglm();
    case Family::kCodeGen: return codegen();
    case Family::kGptBigCode: return gpt_bigcode();
    case Family::kQwen: return qwen();
    case Family::kBaichuan: return baichuan();
    case Family::kApertus: return apertus();
    case Family::kMiniCpm3: return minicpm3();
    case Family::kYoutu: return youtu();
  }
  throw Bug("hf::Family out of range");
}

}  // namespace

namespace {

/// What a class takes for a file that does not say whether the head is tied.
bool tied_by_default(Family family) {
  switch (family) {
    case Family::kGpt2:
    case Family::kOpenAiGpt:
    case Family::kFalcon:
    case Family::kBloom:
    case Family::kStarcoder2:
    case Family::kGptNeo:
    case Family::kMpt:
    case Family::kSmolLm3:
    case Family::kGemma:
    case Family::kGemma2:
    case Family::kGemma3:
    case Family::kGemma4:
    case Family::kVaultGemma:
    case Family::kCohere2:
    case Family::kGraniteSwa:
    case Family::kOpt:
    case Family::kBioGpt:
    case Family::kXglm:
    case Family::kGptBigCode:
    case Family::kCohere:
    case Family::kMiniCpm3:
    case Family::kYoutu:
    case Family::kErnie45: return true;
    default: return false;
  }
}

}  // namespace

ClassTable class_table(Family family) {
  ClassTable table = table_of(family);
  const bool named_init_std = family == Family::kOpt || family == Family::kXglm;
  table.rows = joined(std::move(table.rows), {flag("tie_word_embeddings", {AXIS(tied)}, tied_by_default(family)),
                                              init_std(named_init_std ? "init_std" : "initializer_range")});
  if (family != Family::kGpt2) table.base.init.scheme = model::InitScheme::kNormal;
  return table;
}

}  // namespace ashlar::hf
