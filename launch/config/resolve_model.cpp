#include <algorithm>
#include <cmath>

#include "launch/config/resolver.h"
#include "parallel/model/init.h"
#include "parallel/model/model_constraints.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::config {
namespace {

using model::InitScheme;
using model::ModelConfig;
using model::PosType;

void resolve_sizes(Resolver& r, ModelConfig& m) {
  r.derive("model.n_kv_heads", m.n_heads, {"model.n_heads"}, "model.n_heads");
  const bool head_dim_given = r.given("model.head_dim");
  if (!head_dim_given && r.valid({"model.d_model", "model.n_heads", "model.head_dim"})) {
    const int64_t head_dim = m.d_model / m.n_heads;
    if (m.d_model % m.n_heads != 0 || head_dim < 1 || head_dim > 512) {
      r.error("model.n_heads = ", m.n_heads,
              ": expected model.d_model / model.n_heads to be a whole number from 1 to 512, got ", m.d_model, " / ",
              m.n_heads, "; change model.n_heads or model.d_model, or set model.head_dim");
      r.mark_invalid("model.head_dim");
    }
  }
  r.derive("model.head_dim", m.d_model / m.n_heads, {"model.d_model", "model.n_heads"},
           "model.d_model / model.n_heads");
  if (m.embed_dim == m.d_model) m.embed_dim.reset();  // an embedding of width d_model needs no projections
  if (m.attn.v_head_dim == m.head_dim) m.attn.v_head_dim = 0;

  r.only_when("ffn.multiple_of", m.ffn.gated && !r.given("model.d_ff"), {"ffn.gated", "model.d_ff"});
  const int64_t multiple_of = r.integer("ffn.multiple_of");
  r.derive("model.d_ff", model::derived_d_ff(m.d_model, m.ffn.gated, multiple_of),
           {"model.d_model", "ffn.gated", "ffn.multiple_of"},
           m.ffn.gated ? str_cat("8/3 d_model rounded up to ", multiple_of) : "4 d_model");

  if (m.moe.experts > 0) r.derive("moe.d_ff", m.d_ff, {"model.d_ff", "moe.experts"}, "model.d_ff");

  const auto& dataset = r.facts().dataset_vocab_size;
  if (r.given("vocab.size")) {
    if (dataset && m.vocab_size < *dataset)
      r.error("vocab.size = ", m.vocab_size, ": expected at least ", *dataset,
              ", the number of ids of the dataset; raise vocab.size, or remove the key to use the dataset's size");
  } else if (dataset) {
    r.derive("vocab.size", *dataset, {}, "the vocabulary of the dataset");
  } else {
    // An invalid dataset already has its own error.
    bool explained = !r.valid({"vocab.size", "data.path"});
    for (const std::string& error : r.errors()) explained = explained || error.starts_with("data.path");
    if (!explained)
      r.error("vocab.size: missing, expected the number of ids, since no dataset gives it; e.g. vocab.size = 256");
    r.mark_invalid("vocab.size");
  }
}

void resolve_norms(Resolver& r, const ModelConfig& m) {
  const bool post = m.norm.placement == model::NormPlacement::kPost;
  r.derive("norm.final", !post, {"norm.placement"},
           post ? "norm.placement = \"post\" ends every block with a norm" : "a norm before the head");
  if (m.qk_norm.kind != model::QkNorm::kNone && r.valid({"attn.qk_norm"}))
    r.derive("attn.qk_norm_eps", m.norm.variant.eps, {"norm.eps"}, "norm.eps");
}

/// Adds an error for each absent key that rope.scaling requires and that has no default. Derives rope.attention_factor.
void resolve_scaling(Resolver& r, ModelConfig& m) {
  if (!r.valid({"rope.scaling"})) return;
  const auto required = [&](const char* key) {
    const KeySpec& spec = schema()[key_index(key)];
    if (!applies(spec, r.config()) || r.given(key) || !r.valid({key})) return;
    r.error(key, ": missing, expected ", expectation(spec), " with rope.scaling = \"", name_of(m.rope.scaling),
            "\"; e.g. ", example_line(spec));
    r.mark_invalid(key);
  };
  for (const char* key : {"rope.factor", "rope.original_positions", "rope.short_factor", "rope.long_factor"})
    required(key);
  if (!applies(schema()[key_index("rope.attention_factor")], r.config())) return;
  r.derive("rope.attention_factor", model::default_attention_factor(m.rope), {"rope.factor", "rope.original_positions"},
           m.rope.scaling == model::RopeScaling::kYarn ? "0.1 ln factor + 1"
                                                       : "sqrt(1 + ln factor / ln original_positions)");
}

/// Refuses a rope.base that is not in rope.base_cycle, since no layer would use it. The default base is accepted,
/// because stored configurations contain it.
void check_base(Resolver& r, const model::RopeConfig& rope) {
  const std::vector<double>& cycle = rope.base_cycle;
  const bool turns = std::ranges::any_of(cycle, [](double base) { return base > 0; });
  if (!turns || !r.valid({"rope.base", "rope.base_cycle"}) || rope.base == model::RopeConfig{}.base) return;
  if (std::ranges::find(cycle, rope.base) == cycle.end())
    r.error("rope.base = ", value_text(rope.base), " conflicts with rope.base_cycle = ", value_text(cycle),
            ", which sets the base of every layer; remove rope.base or rope.base_cycle");
}

void resolve_positions(Resolver& r, ModelConfig& m) {
  const bool learned = m.pos.type == PosType::kLearned, rope = m.pos.type == PosType::kRope;
  const int64_t sequence_length = r.config().train.sequence_length;
  if (learned && r.valid({"pos.type"})) {
    if (!r.given("pos.max_positions") && sequence_length == 0) {
      r.error(
          "pos.max_positions: missing, expected an integer, since its default, train.sequence_length, is not given; ",
          "e.g. pos.max_positions = 1024");
      r.mark_invalid("pos.max_positions");
    }
    r.derive("pos.max_positions", sequence_length, {"train.sequence_length"}, "train.sequence_length");
    if (r.valid({"pos.max_positions", "train.sequence_length"}) && sequence_length > m.pos.max_positions)
      r.error("train.sequence_length = ", sequence_length,
              ": expected at most pos.max_positions = ", m.pos.max_positions,
              ", the size of the learned position table; lower train.sequence_length or raise pos.max_positions");
  }
  r.only_when("rope.fraction", rope && !r.given("rope.dims"), {"pos.type", "rope.dims"});
  if (!rope) return;
  check_base(r, m.rope);
  const double fraction = r.number("rope.fraction");
  r.derive("rope.dims", model::rope_dims_of(m.head_dim, fraction), {"model.head_dim", "rope.fraction"},
           str_cat("integer part of head_dim * rope.fraction ", fraction));
  resolve_scaling(r, m);
}

}  // namespace

double value_of_rule(const std::string& rule, const ModelConfig& m) {
  const auto head_dim = static_cast<double>(m.head_dim);
  if (rule == "sqrt(d_model)") return std::sqrt(static_cast<double>(m.d_model));
  if (rule == "d_model^-0.5") return 1.0 / std::sqrt(static_cast<double>(m.d_model));
  if (rule == "1/head_dim") return 1.0 / head_dim;
  if (rule == "(d_model/n_heads)^-0.5")
    return 1.0 / std::sqrt(static_cast<double>(m.d_model) / static_cast<double>(m.n_heads));
  return 1.0 / std::sqrt(head_dim);
}

namespace {

void resolve_factors(Resolver& r, const ModelConfig& m) {
  for (const char* key : {"attn.scale", "embed.scale", "head.logit_scale", "pos.alibi_scale"}) {
    if (!applies(schema()[key_index(key)], r.config())) continue;
    const std::string rule = r.word(key);
    if (rule.empty()) continue;  // the key has a number instead of a rule
    r.set(key, value_of_rule(rule, m));
    r.record(key, value_of_rule(rule, m), {"model.head_dim", "model.d_model", "model.n_heads"}, rule);
  }
}

void resolve_init(Resolver& r, ModelConfig& m) {
  std::string rule;
  const double std = model::default_table_std(m, rule);
  r.derive("init.std", std, {"init.scheme", "model.d_model"}, rule);
  const bool mitchell = m.init.scheme == InitScheme::kMitchell;
  if (mitchell) r.derive("init.trunc_sigma", 3.0, {"init.scheme"}, "init.scheme mitchell");
  if (std::holds_alternative<double>(r.value_of("init.residual_scale"))) return;
  const double by_depth = 1.0 / std::sqrt(2.0 * static_cast<double>(m.n_layers));
  const bool scaled = m.init.scheme == InitScheme::kGpt2 || r.given("init.residual_scale");
  m.init.residual_scale = scaled ? by_depth : 1.0;
  r.record("init.residual_scale", m.init.residual_scale, {"init.scheme", "model.n_layers"},
           scaled ? "1/sqrt(2 n_layers)" : str_cat("init.scheme ", name_of(m.init.scheme)));
}

/// `key` is the key with which the error of a model constraint begins. True if `key` and the other keys that the
/// constraint reads are valid. If one of them is invalid, its error has been reported already; the constraint's error
/// would only follow from it, and is not reported.
bool constraint_is_valid(const Resolver& r, std::string_view key) {
  if (!r.valid({key})) return false;
  if (key == "model.n_kv_heads") return r.valid({"model.n_heads", "attn.kind"});
  if (key == "pos.t5_max_distance") return r.valid({"pos.type", "pos.t5_num_buckets"});
  if (key == "pos.learned_offset") return r.valid({"pos.type"});
  if (key == "model.d_model") return r.valid({"pos.type"});
  if (key == "head.masked_ids") return r.valid({"vocab.size"});
  if (key == "rope.dims") return r.valid({"model.head_dim", "pos.type", "attn.kind"});
  if (key == "rope.local_base" || key == "rope.global_enabled") return r.valid({"rope.base_cycle", "pos.type"});
  if (key == "rope.global_dims" && !r.valid({"rope.dims", "model.head_dim", "attn.global_head_dim"})) return false;
  if (key == "block.parallel_norms") return r.valid({"block.topology"});
  if (key.starts_with("rope.")) return r.valid({"rope.scaling", "rope.factor", "rope.original_positions", "pos.type"});
  if (key == "attn.qk_norm_type" || key == "attn.qk_norm_bias") return r.valid({"attn.qk_norm"});
  if (key == "norm.placement") return r.valid({"block.topology"});
  if (key == "attn.temperature_positions") {
    return r.valid({"pos.type", "rope.dims", "rope.global_dims", "model.head_dim", "attn.global_head_dim",
                    "attn.temperature_beta"});
  }
  if (key == "attn.temperature_beta") return r.valid({"attn.temperature_positions"});
  if (key == "attn.global_n_kv_heads") return r.valid({"model.n_heads"});
  if (key == "attn.k_eq_v") return r.valid({"model.head_dim", "attn.global_head_dim"});
  if (key == "attn.scale") return r.valid({"model.head_dim"});
  if (key.starts_with("moe.")) return r.valid({"moe.experts", "moe.top_k", "moe.groups", "model.n_layers", "ffn.act"});
  if (key == "ffn.gated") return r.valid({"ffn.act"});
  if (key == "ffn.clamp" || key == "ffn.linear_offset") return r.valid({"ffn.gated"});
  return true;
}

}  // namespace

void resolve_model(Resolver& r) {
  ModelConfig& m = r.config().model;
  resolve_sizes(r, m);
  resolve_norms(r, m);
  resolve_positions(r, m);
  resolve_factors(r, m);
  resolve_init(r, m);
  for (std::string& error : model::constraint_errors(m))
    if (constraint_is_valid(r, error.substr(0, error.find_first_of(" :")))) r.error(error);
}

}  // namespace ashlar::config
