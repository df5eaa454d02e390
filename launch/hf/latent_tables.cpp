// Classes of latent attention, and of an activation with learned scalars.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "launch/hf/class_rows.h"

// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::ModelConfig;

/// The widths of a class of latent attention; 0 of v_head_dim: width / heads.
struct LatentSizes {
  int64_t q_rank, kv_rank, nope, rope, v_head_dim;
};

/// Ranks and widths. A head is the rotated and the other columns together; head_dim is the rotated ones' here.
Row latent_sizes(const LatentSizes& s) {
  const auto read = [=](JsonReader& r, HfConfig& c) {
    ModelConfig& m = c.model;
    m.attn.kind = model::AttentionKind::kMla;
    m.attn.q_rank = r.has("q_lora_rank") ? r.optional_size({"q_lora_rank"}).value_or(0)
                                         : r.size({"q_lora_rank"}, s.q_rank);  // null: one matrix
    m.attn.kv_rank = r.size({"kv_lora_rank"}, s.kv_rank);
    m.rope.dims = r.size({"qk_rope_head_dim"}, s.rope);
    m.head_dim = m.rope.dims + r.size({"qk_nope_head_dim"}, s.nope);
    const int64_t v_by_default = s.v_head_dim > 0 ? s.v_head_dim : std::max<int64_t>(m.d_model / m.n_heads, 1);
    const int64_t v = r.optional_size({"v_head_dim"}).value_or(v_by_default);
    m.attn.v_head_dim = v == m.head_dim ? 0 : v;
    // The class works both out.
    const auto unread = [&](const char* key, int64_t made) {
      const auto given = r.optional_size({key});
      if (given && *given != made)
        r.add_note(str_cat(key, " = ", *given, " has no effect in ", class_name(c.family), ", which has ", made));
    };
    unread("head_dim", m.rope.dims);
    unread("qk_head_dim", m.head_dim);
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const ModelConfig& m = c.model;
    j["q_lora_rank"] = m.attn.q_rank > 0 ? Json(m.attn.q_rank) : Json(nullptr);
    j["kv_lora_rank"] = m.attn.kv_rank;
    j["qk_rope_head_dim"] = m.rope.dims;
    j["qk_nope_head_dim"] = m.head_dim - m.rope.dims;
    j["v_head_dim"] = m.attn.v_head_dim > 0 ? m.attn.v_head_dim : m.head_dim;
    j["head_dim"] = m.rope.dims;
    j["qk_head_dim"] = m.head_dim;
  };
  const auto limit = [](const ModelConfig& m) -> std::string {
    if (m.attn.kind == model::AttentionKind::kMla) return "";
    return "attn.kind = standard: the class has latent attention";
  };
  return {.read = read, .write = write, .limit = limit};
}

/// The rotary keys, whose heads are the rotated columns alone.
Row latent_rope(double base) {
  const auto with_rotated_heads = [](HfConfig c) {
    c.model.head_dim = c.model.rope.dims;
    return c;
  };
  const Row whole = rope({.base = base, .whole_heads = true});
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                HfConfig rotated = with_rotated_heads(c);
                whole.read(r, rotated);
                c.model.rope = rotated.model.rope;
                c.notes = rotated.notes;
              },
          .write = [=](Json& j, const HfConfig& c) { whole.write(j, with_rotated_heads(c)); }};
}

/// Under YaRN the scores' scale grows by the square of this, mscale_all_dim times.
double grown(double mscale, double factor) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1; }

double scale_of(const ModelConfig& m, double mscale) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(m.head_dim)), growth = grown(mscale, m.rope.factor);
  return mscale == 0 ? plain : plain * growth * growth;
}

/// Behind latent_rope, which has read all other keys of the dictionary.
Row latent_scale() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    double mscale = 0;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const nlohmann::json* dictionary = r.object(key);
      if (dictionary == nullptr || c.model.rope.scaling == model::RopeScaling::kNone) continue;
      JsonReader d = r.nested(*dictionary, str_cat(key, "."));
      mscale = d.optional_number({"mscale_all_dim"}).value_or(mscale);
    }
    c.model.attn.scale = scale_of(c.model, mscale);
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const ModelConfig& m = c.model;
    if (m.rope.scaling != model::RopeScaling::kYarn || !(m.rope.factor > 1) || m.attn.scale == scale_of(m, 0)) return;
    // The number that the file had, in as many digits as people write.
    const double root = std::sqrt(m.attn.scale * std::sqrt(static_cast<double>(m.head_dim)));
    const double mscale = std::round((root - 1) / (0.1 * std::log(m.rope.factor)) * 1e9) / 1e9;
    for (const char* key : {"rope_scaling", "rope_parameters"}) j[key]["mscale_all_dim"] = mscale;
  };
  return {.read = read, .write = write};
}

Row attention_bias() { return flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false); }

/// A number x near `guess` for which f(x) is `wanted`; the guess where there is none.
template <typename F>
double inverse(double guess, double wanted, const F& f) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double below = std::nextafter(guess, -kInfinity), above = std::nextafter(guess, kInfinity);
  // A short decimal first: it is what the file said.
  for (const double x : {std::round(guess * 1e9) / 1e9, guess, below, above})
    if (f(x) == wanted) return x;
  return guess;
}

/// Each branch counts scale_depth / sqrt(layers) times.
Row depth_scale() {
  constexpr const char* kKey = "scale_depth";
  const auto multiplier = [](const ModelConfig& m, double depth) {
    return depth / std::sqrt(static_cast<double>(m.n_layers));
  };
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool null = r.has(kKey) && !r.has_value(kKey);
                const double depth = r.optional_number({kKey}).value_or(1.4);
                c.model.block.residual_multiplier = null ? 1.0 : multiplier(c.model, depth);
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double wanted = c.model.block.residual_multiplier;
                if (wanted == 1.0) {
                  j[kKey] = nullptr;
                  return;
                }
                j[kKey] = inverse(wanted * std::sqrt(static_cast<double>(c.model.n_layers)), wanted,
                                  [&](double depth) { return multiplier(c.model, depth); });
              }};
}

/// What the head reads is divided by width / dim_model_base.
Row base_width() {
  constexpr const char* kKey = "dim_model_base";
  const auto scale = [](const ModelConfig& m, int64_t base) {
    return 1.0 / (static_cast<double>(m.d_model) / static_cast<double>(base));
  };
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool null = r.has(kKey) && !r.has_value(kKey);
                const int64_t base = r.optional_size({kKey}).value_or(null ? c.model.d_model : 256);
                c.model.logit_scale = scale(c.model, base);
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double base = std::round(c.model.logit_scale * static_cast<double>(c.model.d_model));
                j[kKey] = static_cast<int64_t>(std::clamp(base, 1.0, 2147483647.0));
              }};
}

/// The dictionary that the class takes where the file has none; it then reads no rope_theta beside it.
Row apertus_rope() {
  constexpr double kBase = 12000000.0;
  const Row whole = rope({.base = kBase, .whole_heads = true});
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool said = r.has_value("rope_scaling") || r.has_value("rope_parameters");
                whole.read(r, c);
                if (said) return;
                model::RopeConfig& rope = c.model.rope;
                if (rope.base != kBase)
                  r.refuse("rope_theta", "without a rotary dictionary the class takes 12000000; give rope_parameters");
                rope.scaling = model::RopeScaling::kLlama3;
                rope.factor = 8;
                rope.low_freq_factor = 1;
                rope.high_freq_factor = 4;
                rope.original_positions = 8192;
                r.add_note("the file has no rotary dictionary: llama3 with factor 8, the default of the class");
              },
          .write = whole.write};
}

}  // namespace

ClassTable apertus() {
  return {.base = {.norm = kRmsNorm, .ffn = kUngated, .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(
              usual_rows({131072, 65536, 4096, 32, 32, 14336}, "xielu", "rms_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), qk_norm_eps(), apertus_rope()})};
}

ClassTable minicpm3() {
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({73448, 32768, 2560, 62, 40, 6400}, "silu", "rms_norm_eps", 1e-5),
                         {heads_divide_width(), kv_heads(40), latent_sizes({768, 256, 64, 32, 0}), attention_bias(),
                          flag("mlp_bias", {AXIS(bias.ffn)}, false), number("scale_emb", {AXIS(embed_scale)}, 12.0),
                          depth_scale(), base_width(), latent_rope(10000.0), latent_scale()})};
}

ClassTable youtu() {
  const Row style = {
      .read =
          [](JsonReader& r, HfConfig& c) {
            c.model.rope.style = r.boolean({"rope_interleave"}, true) ? RopeStyle::kInterleaved : RopeStyle::kHalf;
          },
      .write = [](Json& j,
                  const HfConfig& c) { j["rope_interleave"] = c.model.rope.style == RopeStyle::kInterleaved; }};
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({128256, 131072, 2048, 32, 16, 6144}, "silu", "rms_norm_eps", 1e-6),
                         {kv_heads(16), latent_sizes({1536, 512, 128, 64, 128}), attention_bias(), style,
                          latent_rope(10000.0), latent_scale(), ignored({"embedding_initializer_range"})})};
}

}  // namespace ashlar::hf
