#include "launch/zoo/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/strings.h"
#include "core/optim/update_rule.h"
#include "launch/config/schema.h"

namespace ashlar::zoo {
namespace {

using model::ModelConfig;

/// A value that fewer than one in ten of the models have is rare.
constexpr double kRare = 0.1;

/// True for keys that do not distinguish architectures: sizes, initialization and training.
bool is_size(std::string_view key) {
  static const std::set<std::string_view> sizes = {"model.d_model",    "model.n_layers",    "model.n_heads",
                                                   "model.n_kv_heads", "model.head_dim",    "model.d_ff",
                                                   "vocab.size",       "pos.max_positions", "rope.original_positions",
                                                   "rope.dims",        "attn.q_rank",       "attn.kv_rank",
                                                   "attn.v_head_dim",  "moe.experts",       "moe.top_k",
                                                   "moe.d_ff",         "moe.first_layer",   "moe.dense_layers",
                                                   "moe.shared_d_ff",  "moe.groups",        "moe.top_groups",
                                                   "moe.balance",      "moe.balance_coef",  "moe.z_coef",
                                                   "moe.bias_rate"};
  return sizes.contains(key) || key.starts_with("vocab.") || key.starts_with("dropout.") || key.starts_with("init.") ||
         key.starts_with("loss.");
}

/// Returns the symbolic rule, e.g. "sqrt(d_model)", whose value equals `factor`; "" if none matches.
std::string rule_of(const ModelConfig& m, const char* key, double factor) {
  for (const std::string_view rule : config::words_of(config::schema()[config::key_index(key)]))
    if (std::abs(factor / config::value_of_rule(std::string(rule), m) - 1) < 1e-6) return std::string(rule);
  return "";
}

/// Returns attn.window_cycle with names instead of sizes: [W, W, -1], or [W1, W2, -1] if the windows differ.
std::string shape_of_windows(const std::vector<int64_t>& cycle) {
  std::vector<int64_t> sizes;
  for (const int64_t w : cycle)
    if (w >= 0 && std::ranges::find(sizes, w) == sizes.end()) sizes.push_back(w);
  std::vector<std::string> shape;
  for (const int64_t w : cycle) {
    const auto number = std::ranges::find(sizes, w) - sizes.begin() + 1;
    shape.push_back(w < 0 ? "-1" : sizes.size() == 1 ? "W" : str_cat("W", number));
  }
  return str_cat("[", absl::StrJoin(shape, ", "), "]");
}

/// Returns the largest rotary base over the layers; the base of layers with a window (rope.local_base) does not count.
double largest_base(const ModelConfig& m) {
  const std::vector<double>& cycle = m.rope.base_cycle;
  return cycle.empty() ? m.rope.base : *std::ranges::max_element(cycle);
}

/// Returns the architecture options of a configuration by key, and properties derived from its sizes.
std::map<std::string, std::string> options_of(const ModelConfig& m) {
  std::map<std::string, std::string> options;
  for (auto& [key, value] : config::model_values(m))
    if (!is_size(key)) options.emplace(std::move(key), std::move(value));
  options["KV heads"] = m.n_kv_heads == m.n_heads ? "as many as query heads"
                        : m.n_kv_heads == 1       ? "one"
                                                  : "fewer than heads";
  options["experts"] = m.moe.experts == 0 ? "none" : m.moe.shared_d_ff > 0 ? "routed and a shared one" : "routed";
  options["values"] = m.attn.v_head_dim == 0 ? "as wide as keys" : "of a width other than keys";
  options["n_heads * head_dim"] = m.n_heads * m.head_dim == m.d_model ? "d_model" : "another width";
  if (m.embed_dim) options["model.embed_dim"] = *m.embed_dim < m.d_model ? "less than d_model" : "more than d_model";
  for (const char* key : {"attn.global_head_dim", "attn.global_n_kv_heads", "rope.global_dims"})
    if (options.contains(key)) options[key] = "another number";
  options["attn.window_cycle"] = shape_of_windows(m.attn.window_cycle);
  // Replaces a number by the symbolic rule that gives it, if one matches.
  for (const auto& [key, factor] : {std::pair("attn.scale", m.attn.scale),
                                    {"embed.scale", m.embed_scale},
                                    {"head.logit_scale", m.logit_scale},
                                    {"pos.alibi_scale", m.pos.alibi_scale}}) {
    const std::string rule = options.contains(key) ? rule_of(m, key, factor) : "";
    if (!rule.empty()) options[key] = rule;
  }
  // YaRN's factor on the scale of latent attention: a tiny twin has the same, and heads of another width.
  if (const auto scale = options.find("attn.scale");
      m.attn.kv_rank > 0 && scale != options.end() && parse_number<double>(scale->second))
    scale->second = absl::StrFormat("%.6g head_dim^-0.5", m.attn.scale * std::sqrt(static_cast<double>(m.head_dim)));
  return options;
}

/// A ratio of two settings, which notes() compares with its range over the published models.
struct Ratio {
  const char* name;
  std::function<std::optional<double>(const config::RunConfig&)> of;
  const char* meaning;
};

std::vector<Ratio> ratios() {
  const auto over = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  using Number = std::optional<double>;
  const auto has_dense = [](const config::RunConfig& c) { return c.model.expert_layers() < c.model.n_layers; };
  return {
      {"d_ff / d_model of a gated FFN",
       [=](const config::RunConfig& c) {
         return c.model.ffn.gated && has_dense(c) ? Number(over(c.model.d_ff, c.model.d_model)) : std::nullopt;
       },
       "8/3 has as many parameters as an ungated FFN with 4"},
      {"d_ff / d_model of an FFN without a gate",
       [=](const config::RunConfig& c) {
         return c.model.ffn.gated || !has_dense(c) ? std::nullopt : Number(over(c.model.d_ff, c.model.d_model));
       },
       "4 is customary"},
      {"moe.top_k * moe.d_ff / d_model",
       [=](const config::RunConfig& c) {
         const model::MoeConfig& moe = c.model.moe;
         return moe.experts > 0 ? Number(over(moe.top_k * moe.d_ff, c.model.d_model)) : std::nullopt;
       },
       "width of the experts that process a token"},
      {"head_dim", [](const config::RunConfig& c) { return Number(static_cast<double>(c.model.head_dim)); },
       "kernels are fastest at 64 and 128"},
      {"d_model / n_layers",
       [=](const config::RunConfig& c) { return Number(over(c.model.d_model, c.model.n_layers)); },
       "width for each layer of depth"},
      {"rope.base / train.sequence_length",
       [](const config::RunConfig& c) {
         const bool known = c.model.pos.type == model::PosType::kRope && c.train.sequence_length > 0;
         return known ? Number(largest_base(c.model) / static_cast<double>(c.train.sequence_length)) : std::nullopt;
       },
       "longer sequences need a larger base"},
  };
}

}  // namespace

std::vector<Uses> usage_by_key(const std::vector<Published>& models) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> by_key;
  for (const Published& p : models)
    for (const auto& [key, value] : options_of(p.config.model)) by_key[key][value].push_back(p.id);
  std::vector<Uses> all;
  for (auto& [key, values] : by_key) {
    Uses uses{.key = key, .values = {}};
    for (auto& [value, ids] : values) uses.values.push_back({value, std::move(ids)});
    std::ranges::stable_sort(uses.values, [](const Use& a, const Use& b) { return a.ids.size() > b.ids.size(); });
    all.push_back(std::move(uses));
  }
  return all;
}

std::vector<Neighbour> neighbours(const config::RunConfig& config, const std::vector<Published>& models) {
  const std::map<std::string, std::string> mine = options_of(config.model);
  std::vector<Neighbour> all;
  for (const Published& p : models) {
    Neighbour n{.model = &p, .differences = {}};
    const std::map<std::string, std::string> theirs = options_of(p.config.model);
    std::set<std::string> keys;
    for (const auto& [key, value] : mine) keys.insert(key);
    for (const auto& [key, value] : theirs) keys.insert(key);
    const auto value_of = [](const std::map<std::string, std::string>& options, const std::string& key) {
      const auto at = options.find(key);
      return at == options.end() ? std::string("(none)") : at->second;
    };
    for (const std::string& key : keys) {
      const std::string left = value_of(mine, key), right = value_of(theirs, key);
      if (left != right) n.differences.push_back({key, left, right});
    }
    const ModelConfig &a = config.model, &b = p.config.model;
    for (const auto& [x, y] : {std::pair(a.n_layers, b.n_layers), std::pair(a.d_model, b.d_model),
                               std::pair(a.n_heads, b.n_heads), std::pair(a.d_ff, b.d_ff)})
      n.size_distance += std::abs(std::log(static_cast<double>(x) / static_cast<double>(y)));
    all.push_back(std::move(n));
  }
  std::ranges::stable_sort(all, [](const Neighbour& a, const Neighbour& b) {
    return std::pair(a.differences.size(), a.size_distance) < std::pair(b.differences.size(), b.size_distance);
  });
  return all;
}

std::vector<Note> notes(const config::RunConfig& config, const std::vector<Published>& models) {
  std::vector<Note> found;
  const auto all = static_cast<double>(models.size());
  const std::vector<Uses> uses = usage_by_key(models);
  for (const auto& [key, value] : options_of(config.model)) {
    const auto of_key = std::ranges::find_if(uses, [&](const Uses& u) { return u.key == key; });
    std::vector<std::string> ids;
    if (of_key != uses.end())
      for (const Use& use : of_key->values)
        if (use.value == value) ids = use.ids;
    const std::string what = str_cat(key, " = ", value);
    if (ids.empty()) {
      found.push_back({Note::Kind::kUnique, str_cat(what, ": no published model here has it")});
    } else if (static_cast<double>(ids.size()) < kRare * all) {
      found.push_back({Note::Kind::kRare, str_cat(what, ": ", absl::StrJoin(ids, ", "))});
    } else {
      found.push_back({Note::Kind::kCustomary, str_cat(what, ": ", ids.size(), " of ", models.size())});
    }
  }
  for (const Ratio& ratio : ratios()) {
    const std::optional<double> mine = ratio.of(config);
    if (!mine) continue;
    double low = std::numeric_limits<double>::infinity(), high = -low;
    std::string lowest, highest;
    for (const Published& p : models) {
      const std::optional<double> theirs = ratio.of(p.config);
      if (theirs && *theirs < low) low = *theirs, lowest = p.id;
      if (theirs && *theirs > high) high = *theirs, highest = p.id;
    }
    if (low > high || (*mine >= low && *mine <= high)) continue;
    found.push_back(
        {Note::Kind::kWarning, absl::StrFormat("%s = %.4g, outside of %.4g (%s) to %.4g (%s): %s", ratio.name, *mine,
                                               low, lowest, high, highest, ratio.meaning)});
  }
  return found;
}

}  // namespace ashlar::zoo
