#include "launch/new_config/model_sections.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/new_config/amounts.h"

namespace ashlar::new_config {

namespace {

using model::ModelConfig;

/// Why a key has a value, with the source. An empty value: any value.
struct Reason {
  std::string_view key, value, text;
};
constexpr Reason kReasons[] = {
    {"norm.type", "\"rmsnorm\"", "no mean and no bias: as good and cheaper (Zhang & Sennrich 2019)"},
    {"norm.type", "\"layernorm\"", "Ba et al. 2016"},
    {"norm.affine", "", "learned gain, or gain and bias"},
    {"norm.eps", "", "keeps the root away from 0"},
    {"norm.placement", "\"post\"", "after the addition (GPT-1); needs a low rate and a warm-up (Xiong et al. 2020)"},
    {"norm.placement", "\"sandwich\"", "before a branch and on its output (Gemma 2)"},
    {"norm.placement", "\"output\"", "on the output of a branch: steadier loss (OLMo 2, arXiv 2501.00656)"},
    {"norm.unit_offset", "", "gains 1 + g that decay to 1, not to 0"},
    {"norm.embed", "", "steadies large models in half precision (BLOOM)"},
    {"block.topology", "", "attention and FFN side by side: faster, little loss (GPT-J, PaLM)"},
    {"ffn.act", "\"silu\"", "with the gate: SwiGLU (Shazeer 2020)"},
    {"ffn.act", "\"gelu_tanh\"", "Hendrycks & Gimpel 2016, the tanh form"},
    {"ffn.act", "\"relu2\"", "So et al. 2021"},
    {"ffn.gated", "true", "three matrices (Shazeer 2020)"},
    {"ffn.gated", "false", "two matrices"},
    {"moe.experts", "", "networks of a layer (Shazeer et al. 2017)"},
    {"moe.top_k", "", "of them for each token"},
    {"moe.score", "\"sigmoid\"", "DeepSeek V3 (arXiv 2412.19437)"},
    {"moe.balance_coef", "", "keeps the experts evenly used (Fedus et al. 2021)"},
    {"moe.z_coef", "", "bounds the router's logits (ST-MoE, Zoph et al. 2022)"},
    {"moe.selection_bias", "", "balance without a loss (Wang et al. 2024, arXiv 2408.15664)"},
    {"pos.type", "\"rope\"", "rotary positions (Su et al. 2021)"},
    {"pos.type", "\"learned\"", "a table of as many rows as the sequence is long"},
    {"pos.type", "\"alibi\"", "linear biases (Press et al. 2022)"},
    {"pos.type", "\"t5_bias\"", "learned biases by distance (Raffel et al. 2020)"},
    {"rope.base", "", "of the slowest rotation; larger for longer contexts"},
    {"rope.local_base", "", "of layers with a window"},
    {"attn.qk_norm", "", "bounds the attention logits (Henry et al. 2020; Dehghani et al. 2023)"},
    {"attn.softcap", "", "bounds the scores (Gemma 2)"},
    {"attn.window_cycle", "", "windows of the layers in tokens, -1: full (Beltagy et al. 2020)"},
    {"attn.kind", "\"mla\"", "keys and values from a small latent (DeepSeek V2, arXiv 2405.04434)"},
    {"attn.sinks", "", "a score without a value takes part in the softmax (gpt-oss)"},
    {"embed.scale", "", "rows of unit variance for the residual stream (Vaswani et al. 2017)"},
    {"head.softcap", "", "bounds the logits (Gemma 2)"},
    {"loss.z_coef", "", "keeps log Z near 0 (PaLM, arXiv 2204.02311)"},
    {"init.scheme", "\"normal\"", "every matrix from N(0, std)"},
    {"init.scheme", "\"gpt2\"", "N(0, std), what writes to the stream over sqrt(2 n_layers) (GPT-2)"},
    {"init.scheme", "\"small_wang\"", "Nguyen & Salazar 2019, Wang & Komatsuzaki 2021 (GPT-NeoX)"},
};

std::string reason_for(std::string_view key, std::string_view value, const std::string& source) {
  const auto* reason = std::ranges::find_if(
      kReasons, [&](const Reason& r) { return r.key == key && (r.value.empty() || r.value == value); });
  const std::string as = "as " + source;
  return reason == std::end(kReasons) ? as : str_cat(reason->text, "; ", as);
}

std::string width_reason(const Family& family, const Shape& shape) {
  const ModelConfig& m = shape.model;
  const double aspect = static_cast<double>(m.d_model) / static_cast<double>(m.n_layers);
  return absl::StrFormat(
      "%.3g times the layers: %s", aspect,
      shape.published
          ? absl::StrFormat("%s has %.3g", family.title, shape.aspect)
          : absl::StrFormat("near %.3g, the aspect ratio of GPT-3's sizes (arXiv 2005.14165, 2.1)", shape.aspect));
}

void write_sizes(const Family& family, const Shape& shape, AnnotatedToml& toml) {
  const ModelConfig& m = shape.model;
  const ModelConfig& from = family.config.model;
  toml.set("model.d_model", m.d_model, width_reason(family, shape));
  toml.set("model.n_layers", m.n_layers,
           str_cat(amount_text(static_cast<double>(shape.in_layers)), " of the ",
                   amount_text(static_cast<double>(shape.active)), " parameters that a token meets are in the layers"));
  toml.set("model.n_heads", m.n_heads,
           str_cat("heads of ", m.head_dim, " columns; ", family.title, " has ", from.n_heads, " of ", from.head_dim));
  if (m.n_kv_heads != m.n_heads)
    toml.set("model.n_kv_heads", m.n_kv_heads,
             str_cat(m.n_heads / m.n_kv_heads, " query heads share one (Ainslie et al. 2023); ", family.title, ": ",
                     from.n_heads / from.n_kv_heads));
  if (m.n_heads * m.head_dim != m.d_model)
    toml.set("model.head_dim", m.head_dim, str_cat("not d_model / n_heads; as ", family.title));
  const auto share = [](int64_t width, int64_t d_model) {
    return absl::StrFormat("%.3g d_model", static_cast<double>(width) / static_cast<double>(d_model));
  };
  toml.set("model.d_ff", m.d_ff,
           str_cat(share(m.d_ff, m.d_model), "; ", family.title, ": ", share(from.d_ff, from.d_model)));
  if (m.embed_dim) toml.set("model.embed_dim", *m.embed_dim, str_cat("narrower token tables, as ", family.title));
  if (m.moe.experts == 0) return;
  toml.set("moe.d_ff", m.moe.d_ff,
           str_cat(share(m.moe.d_ff, m.d_model), "; ", family.title, ": ", share(from.moe.d_ff, from.d_model)));
  if (m.moe.shared_d_ff > 0) toml.set("moe.shared_d_ff", m.moe.shared_d_ff, "of the expert that sees every token");
  if (m.moe.first_layer > 0)
    toml.set("moe.first_layer", m.moe.first_layer, "the first layers are dense, as " + family.title);
}

void write_attention_sizes(const Family& family, const ModelConfig& m, AnnotatedToml& toml) {
  const std::string scaled = str_cat("in proportion to the heads of ", family.title);
  if (m.attn.kind == model::AttentionKind::kMla) {
    toml.set("attn.kv_rank", m.attn.kv_rank, "four heads wide (DeepSeek V2, arXiv 2405.04434)");
    if (m.attn.q_rank > 0) toml.set("attn.q_rank", m.attn.q_rank, "of the queries, at most d_model");
  }
  if (m.attn.v_head_dim > 0) toml.set("attn.v_head_dim", m.attn.v_head_dim, scaled);
  if (m.attn.global_head_dim) toml.set("attn.global_head_dim", *m.attn.global_head_dim, scaled);
  if (m.attn.global_n_kv_heads) toml.set("attn.global_n_kv_heads", *m.attn.global_n_kv_heads, scaled);
  if (m.rope.global_dims) toml.set("rope.global_dims", *m.rope.global_dims, scaled);
  const bool fraction = toml.has("rope.fraction");
  if (m.pos.type == model::PosType::kRope && m.rope.dims != m.head_dim && !fraction)
    toml.set("rope.dims", m.rope.dims, scaled);
  if (m.pos.type == model::PosType::kLearned)
    toml.set("pos.max_positions", m.pos.max_positions, "train.sequence_length");
}

/// The standard deviation of the family's model. Deep and wide models have smaller ones; they are widened by the root
/// of the ratio of widths, up to 0.02.
double init_std(const Family& family, const Shape& shape) {
  constexpr double kUsual = 0.02;
  const double std = family.config.model.init.std;
  if (shape.published || std >= kUsual) return std;
  const double wider =
      std * std::sqrt(static_cast<double>(family.config.model.d_model) / static_cast<double>(shape.model.d_model));
  return std::min(kUsual, 1e-4 * std::round(1e4 * wider));
}

}  // namespace

void write_model(const Family& family, const Shape& shape, AnnotatedToml& toml) {
  const ModelConfig& m = shape.model;
  write_sizes(family, shape, toml);
  for (const Option& option : family.options)
    toml.set(option.key, option.value,
             str_cat(reason_for(option.key, option.value, family.title),
                     option.comment.empty() ? "" : str_cat(" (", option.comment, ")")));
  const auto also = [&](std::string_view key, std::string value) {
    if (!toml.has(key)) toml.set(key, value, reason_for(key, value, family.title));
  };
  const auto quoted = [](std::string_view word) { return str_cat("\"", word, "\""); };
  also("norm.type", quoted(name_of(m.norm.variant.type)));
  also("norm.eps", str_cat(m.norm.variant.eps));
  also("ffn.act", quoted(name_of(m.ffn.act)));
  also("ffn.gated", m.ffn.gated ? "true" : "false");
  also("pos.type", quoted(name_of(m.pos.type)));
  if (m.pos.type == model::PosType::kRope && m.rope.base_cycle.empty())
    also("rope.base", str_cat(static_cast<int64_t>(m.rope.base), ".0"));
  write_attention_sizes(family, m, toml);
  also("init.scheme", quoted(name_of(m.init.scheme)));
  using enum model::InitScheme;
  if (m.init.scheme == kNormal || m.init.scheme == kGpt2)
    toml.set_number("init.std", init_std(family, shape),
                    init_std(family, shape) == family.config.model.init.std
                        ? "as " + family.title
                        : absl::StrFormat("%s has %g at d_model %d", family.title, family.config.model.init.std,
                                          family.config.model.d_model));
  const std::string tables = absl::StrFormat("%.0f%%", 100 * shape.tables);
  toml.set("vocab.pad_to", m.vocab_pad_to,
           str_cat(grouped(m.vocab_size), " ids of the dataset in ", grouped(m.vocab_padded()),
                   " rows: aligned for kernels, divided by tensor ranks"));
  toml.set("head.tie", m.tied ? "true" : "false",
           shape.tied_for_size ? str_cat("unlike ", family.title, ": one table is ", tables,
                                         " of the parameters (MobileLLM, arXiv 2402.14905; Llama 3.2 1B)")
           : m.tied            ? str_cat("as ", family.title, "; the table is ", tables, " of the parameters")
                               : str_cat("as ", family.title, "; both tables are ", tables, " of the parameters"));
}

}  // namespace ashlar::new_config
