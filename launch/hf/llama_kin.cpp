#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/hf/class_rows.h"

// Classes with Llama's names and block but for an axis or two.
// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::PosType;

/// Biases as Llama's keys say them.
Rows bias_rows(bool fallback) {
  return {flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, fallback),
          flag("mlp_bias", {AXIS(bias.ffn)}, fallback)};
}

/// The first published files say hidden_act = "gelu", and meant its tanh form; hidden_activation was added to say so.
Row gemma_activation() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    const Row named = activation("hidden_activation", "gelu_pytorch_tanh"),
              old = activation("hidden_act", "gelu_pytorch_tanh");
    const bool has_new = r.has_value("hidden_activation"), has_old = r.has_value("hidden_act");
    r.ignore({"hidden_activation", "hidden_act"});
    if (has_old || !has_new) old.read(r, c);
    if (c.model.ffn.act == Activation::kGeluErf) c.model.ffn.act = Activation::kGeluTanh;
    if (!has_new) return;
    const Activation said = c.model.ffn.act;
    named.read(r, c);
    if (has_old && said != c.model.ffn.act) {
      r.refuse("hidden_act", "hidden_activation says ", name_of(c.model.ffn.act), "; keep one");
    }
  };
  const auto write = [](Json& j, const HfConfig& c) {
    activation("hidden_activation", "").write(j, c);
    if (c.model.ffn.act == Activation::kGeluTanh) j["hidden_activation"] = "gelu_pytorch_tanh";
    j["hidden_act"] = j["hidden_activation"];  // transformers 5 reads this one alone
  };
  return {.read = read, .write = write};
}

}  // namespace

ClassTable gemma() {
  // sqrt(width) times the embedding, and gains as 1 + g, whatever the file says.
  return {.base = {.norm = {.variant = {.type = NormType::kRmsNorm, .unit_offset = true}}},
          .rows = joined(usual_rows({256000, 8192, 3072, 28, 16, 24576}, gemma_activation(), "rms_norm_eps", 1e-6),
                         {embedding_times_root_of_width(), kv_heads(16), size({"head_dim"}, {AXIS(head_dim)}, 256),
                          flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false),
                          rope({.whole_heads = true}), causal_attention_alone()})};
}

ClassTable nemotron() {
  return {.base = {.norm = {.variant = {.type = NormType::kLayerNorm, .unit_offset = true},
                            .affine = model::NormAffine::kScaleBias},
                   .ffn = kUngated},
          .rows = joined(usual_rows({256000, 4096, 6144, 32, 48, 24576}, "relu2", "norm_eps", 1e-5),
                         joined({kv_heads(), head_dim(HeadDim::kWritten), rope({.fraction = 0.5})}, bias_rows(false)))};
}

ClassTable nanochat() {
  // Rotated by minus the angle, then normed without a gain, as all of its norms are.
  const Row cap = {.read =
                       [](JsonReader& r, HfConfig& c) {
                         constexpr const char* kKey = "final_logit_softcapping";
                         c.model.softcap = r.has(kKey) ? r.optional_number({kKey}) : std::optional(15.0);
                       },
                   .write =
                       [](Json& j, const HfConfig& c) {
                         j["final_logit_softcapping"] = c.model.softcap ? Json(*c.model.softcap) : Json(nullptr);
                       }};
  return {.base = {.norm = {.variant = {.type = NormType::kRmsNorm}, .affine = model::NormAffine::kNone, .embed = true},
                   .ffn = kUngated,
                   .rope = {.reversed = true},
                   .qk_norm = {.kind = model::QkNorm::kL2, .order = model::QkNormOrder::kAfterRope}},
          .rows = joined(
              usual_rows({50304, 2048, 768, 12, 6, 8192}, "relu2", "rms_norm_eps", 1e-6),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), qk_norm_eps(), cap,
               flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false), rope({.whole_heads = true})})};
}

ClassTable ministral3() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({131072, 262144, 4096, 34, 32, 14336}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(8), head_dim(HeadDim::kWritten, 128), windows({.types = false}),
                          rope({.whole_heads = true, .temperature = true})})};
}

namespace {

/// The ids of image tokens, whose logits the class takes away: those of vocabulary_map whose names begin so. Written
/// with names that say the number of each, from which the class makes it again.
Row chameleon_masked_ids() {
  constexpr const char* kKey = "vocabulary_map";
  constexpr const char* kBegin = "IMGIMG";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const nlohmann::json* map = r.raw(kKey);
    if (map == nullptr) return;
    std::set<int64_t> ids;
    const bool good = map->is_object() && std::all_of(map->begin(), map->end(),
                                                      [](const nlohmann::json& id) { return id.is_number_integer(); });
    if (!good) return r.refuse(kKey, "expected an object of texts and their ids");
    for (const auto& [name, id] : map->items())
      if (name.starts_with(kBegin)) ids.insert(id.get<int64_t>());
    c.model.masked_ids = {ids.begin(), ids.end()};
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    j[kKey] = Json::object();
    for (size_t i = 0; i < c.model.masked_ids.size(); ++i) {
      std::string name = std::to_string(i);
      for (char& digit : name) digit = static_cast<char>('A' + (digit - '0'));
      j[kKey][kBegin + name + "Z"] = c.model.masked_ids[i];
    }
  };
  return {.read = read, .write = write};
}

}  // namespace

ClassTable chameleon() {
  // The text part: the image tokenizer (vq_config, model.vqmodel) is left out.
  const Row placement = {
      .read =
          [](JsonReader& r, HfConfig& c) {
            if (r.boolean({"swin_norm"}, false)) c.model.norm.placement = model::NormPlacement::kOutput;
          },
      .write = [](Json& j,
                  const HfConfig& c) { j["swin_norm"] = c.model.norm.placement == model::NormPlacement::kOutput; }};
  return {.base = {.norm = kRmsNorm,
                   // Its eps is 1e-5 always.
                   .qk_norm = {.kind = model::QkNorm::kHeadPer, .type = NormType::kLayerNorm, .bias = true}},
          .rows = joined(usual_rows({65536, 4096, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
                         joined({kv_heads(32), head_dim(HeadDim::kDerived), placement, chameleon_masked_ids(),
                                 rope({.whole_heads = true}), ignored({"vq_config"})},
                                bias_rows(false)))};
}

ClassTable arcee() {
  return {.base = {.norm = kRmsNorm, .ffn = kUngated},
          .rows = joined(
              usual_rows({32000, 4096, 2560, 32, 32, 18432}, "relu2", "rms_norm_eps", 1e-5),
              joined({heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten), rope({.whole_heads = true})},
                     bias_rows(false)))};
}

/// Baichuan 1 has the same class name, no norm on the head's rows, and no key of this name.
Row baichuan2_z_loss() {
  constexpr const char* kKey = "z_loss_weight";
  return {
      .read =
          [=](JsonReader& r, HfConfig& c) {
            if (!r.has(kKey)) {
              r.add_error(str_cat(kKey, " is absent: Baichuan 1 and 2 cannot be told apart by their class; expected ",
                                  "a number, 0 for Baichuan 2 without z-loss"));
            }
            c.model.loss = {.z_coef = r.number({kKey}, 0), .z_kind = ZKind::kMaxLogit};
          },
      .write =
          [=](Json& j, const HfConfig& c) {
            j[kKey] = c.model.loss.z_kind == ZKind::kMaxLogit ? c.model.loss.z_coef : 0.0;
          }};
}

ClassTable baichuan() {
  // The 13B has ALiBi, and says so by leaving out how many positions it has.
  const Row positions_kind = {.read =
                                  [](JsonReader& r, HfConfig& c) {
                                    const std::optional<int64_t> longest = r.optional_size({"model_max_length"});
                                    if (longest && !r.has_value("max_position_embeddings")) {
                                      r.ignore({"max_position_embeddings"});
                                      c.extras.max_positions = *longest;
                                      c.model.pos.type = PosType::kAlibi;
                                    } else {
                                      positions({"max_position_embeddings"}, 4096).read(r, c);
                                      c.model.rope.dims = c.model.head_dim;
                                    }
                                  },
                              .write =
                                  [](Json& j, const HfConfig& c) {
                                    j["model_max_length"] = c.extras.max_positions;
                                    if (c.model.pos.type != PosType::kAlibi)
                                      j["max_position_embeddings"] = c.extras.max_positions;
                                  }};
  const Row untied = {.read = [](JsonReader&, HfConfig&) {},
                      .limit =
                          [](const model::ModelConfig& m) {
                            return m.tied ? "head.tie = true: BaichuanForCausalLM has a head of its own"
                                          : std::string();
                          }};
  return {
      .base = {.norm = kRmsNorm, .norm_rows = true},
      .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 125696), size({"hidden_size"}, {AXIS(d_model)}, 4096),
               size({"num_hidden_layers"}, {AXIS(n_layers)}, 32),
               size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 32),
               size({"intermediate_size"}, {AXIS(d_ff)}, 11008), activation("hidden_act", "silu"),
               number("rms_norm_eps", {AXIS(norm.variant.eps)}, 1e-6), head_dim(HeadDim::kDerived), positions_kind,
               always_zero("attention_dropout", "the class drops nothing; expected 0"), untied, baichuan2_z_loss()}};
}

ClassTable qwen() {
  // The published files give twice the width of a half.
  const Row width = {.read =
                         [](JsonReader& r, HfConfig& c) {
                           const int64_t both = r.size({"intermediate_size"}, 22016);
                           if (both % 2 != 0)
                             r.refuse("intermediate_size", "it is twice d_ff; expected an even number");
                           c.model.d_ff = both / 2;
                         },
                     .write = [](Json& j, const HfConfig& c) { j["intermediate_size"] = 2 * c.model.d_ff; }};
  const Row head = {.read =
                        [](JsonReader& r, HfConfig& c) {
                          c.model.head_dim = std::max<int64_t>(c.model.d_model / c.model.n_heads, 1);
                          const int64_t said = r.optional_size({"kv_channels"}).value_or(128);
                          if (said != c.model.head_dim) {
                            r.add_error(str_cat("kv_channels = ", said, ": expected width / heads = ", c.model.head_dim,
                                                ", which the class splits by"));
                          }
                        },
                    .write = [](Json& j, const HfConfig& c) { j["kv_channels"] = c.model.head_dim; }};
  const Row biases = {
      .read = [](JsonReader& r,
                 HfConfig& c) { c.model.bias.attn_out = c.model.bias.ffn = !r.boolean({"no_bias"}, true); },
      .write = [](Json& j, const HfConfig& c) { j["no_bias"] = !c.model.bias.ffn; }};
  const Row beyond = {.read =
                          [](JsonReader& r, HfConfig&) {
                            for (const char* key : {"use_dynamic_ntk", "use_logn_attn"}) {
                              if (r.boolean({key}, true))
                                r.add_note(str_cat(key, " acts beyond seq_length tokens only; it is left out here"));
                            }
                          },
                      .write =
                          [](Json& j, const HfConfig&) {
                            j["use_dynamic_ntk"] = false;
                            j["use_logn_attn"] = false;
                          }};
  return {.base = {.norm = kRmsNorm, .bias = {.qkv = true}},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 151936), positions({"max_position_embeddings"}, 8192),
                   size({"hidden_size"}, {AXIS(d_model)}, 4096), size({"num_hidden_layers"}, {AXIS(n_layers)}, 32),
                   size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 32), width, head, biases,
                   number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-6),
                   number("emb_dropout_prob", {AXIS(dropout.embed)}, 0.0),
                   number("attn_dropout_prob", {AXIS(dropout.attn)}, 0.0),
                   rope({.base_key = "rotary_emb_base", .fraction_key = "rotary_pct"}), beyond,
                   ignored("seq_length", [](const HfConfig& c) { return Json(c.extras.max_positions); }),
                   ignored({"scale_attn_weights"})}};
}

ClassTable jais2() {
  return {.base = {.norm = kLayerNorm, .ffn = kUngated},
          .rows = joined(usual_rows({150272, 8192, 3328, 32, 26, 26624}, "relu2", "layer_norm_eps", 1e-5),
                         joined({heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten),
                                 rope({.base = 500000.0, .whole_heads = true})},
                                bias_rows(true)))};
}

}  // namespace ashlar::hf
