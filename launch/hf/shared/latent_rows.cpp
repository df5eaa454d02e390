#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

using model::ModelConfig;

Row latent_sizes(const LatentSizes& s) {
  const auto read = [=](JsonReader& r, HfConfig& c) {
    ModelConfig& m = c.model;
    m.attn.kind = model::AttentionKind::kMla;
    m.attn.q_rank = r.has("q_lora_rank") ? r.optional_size({"q_lora_rank"}).value_or(0)
                                         : r.size({"q_lora_rank"}, s.q_rank);  // null: one full matrix, q_rank = 0
    m.attn.kv_rank = r.size({"kv_lora_rank"}, s.kv_rank);
    m.rope.dims = r.size({"qk_rope_head_dim"}, s.rope);
    m.head_dim = m.rope.dims + r.size({"qk_nope_head_dim"}, s.nope);
    const int64_t v_by_default = s.v_head_dim > 0 ? s.v_head_dim : std::max<int64_t>(m.d_model / m.n_heads, 1);
    const int64_t v = r.optional_size({"v_head_dim"}).value_or(v_by_default);
    m.attn.v_head_dim = v == m.head_dim ? 0 : v;
    // The class does not read head_dim and qk_head_dim. It computes their values from the other dimensions.
    const auto unread = [&](const char* key, int64_t made) {
      const auto given = r.optional_size({key});
      if (given && *given != made)
        r.add_note(str_cat(key, " = ", *given, " has no effect in ", c.family->class_name, ", which has ", made));
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
  const auto limit = [](const ModelConfig& m) {
    const bool latent = m.attn.kind == model::AttentionKind::kMla;
    return std::string(latent ? "" : "attn.kind = standard: the class has latent attention");
  };
  return {.read = read, .write = write, .limit = limit};
}

namespace {

/// Row for the rotary keys. rope() converts them as if a head had only its rotated dimensions.
Row rotated_columns(double base) {
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

/// Returns YaRN's factor for `mscale`. The scale of the attention scores is multiplied by the square of this factor.
double grown(double mscale, double factor) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1; }

double scale_of(const ModelConfig& m, double mscale) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(m.head_dim)), growth = grown(mscale, m.rope.factor);
  return mscale == 0 ? plain : plain * growth * growth;
}

/// Converts mscale_all_dim, which changes the scale of the attention scores. This row must follow rotated_columns(),
/// which reads all other keys of rope_scaling and rope_parameters.
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
    // The inverse of scale_of(). The result is rounded, because files have mscale with few digits.
    const double root = std::sqrt(m.attn.scale * std::sqrt(static_cast<double>(m.head_dim)));
    const double mscale = std::round((root - 1) / (0.1 * std::log(m.rope.factor)) * 1e9) / 1e9;
    for (const char* key : {"rope_scaling", "rope_parameters"}) j[key]["mscale_all_dim"] = mscale;
  };
  return {.read = read, .write = write};
}

}  // namespace

Rows latent_rope(double base) { return {rotated_columns(base), latent_scale()}; }

}  // namespace ashlar::hf
