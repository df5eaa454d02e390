#include "launch/new_config/family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/config/schema.h"
#include "launch/zoo/published.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::new_config {

namespace {

using zoo::PublishedText;

/// True for a word such as "7b", "135m" or "1.7b".
bool is_size(std::string_view word) {
  return word.size() > 1 && word.front() >= '0' && word.front() <= '9' && (word.back() == 'b' || word.back() == 'm');
}

/// "qwen3" of "qwen3-30b-a3b": the words before the first size.
std::string words_before_size(std::string_view id) {
  std::string family;
  std::istringstream words{std::string(id)};
  for (std::string word; std::getline(words, word, '-') && !is_size(word);)
    family += (family.empty() ? "" : "-") + word;
  return family;
}

bool is_of(std::string_view family, std::string_view id) {
  return id == family || (id.starts_with(family) && id.substr(family.size()).starts_with('-'));
}

/// Keys that depend on the size of the model; the shape and the training rules write them.
bool depends_on_size(std::string_view key) {
  constexpr std::array kKeys = {"head.tie",
                                "head.masked_ids",
                                "moe.d_ff",
                                "moe.shared_d_ff",
                                "moe.first_layer",
                                "moe.dense_layers",
                                "attn.q_rank",
                                "attn.kv_rank",
                                "attn.v_head_dim",
                                "attn.global_head_dim",
                                "attn.global_n_kv_heads",
                                "rope.dims",
                                "rope.global_dims",
                                "pos.max_positions",
                                "init.std"};
  for (const std::string_view section : {"model.", "vocab.", "dropout.", "train."})
    if (key.starts_with(section)) return true;
  return std::ranges::find(kKeys, key) != kKeys.end();
}

/// True if the key belongs to a rope.scaling that stretches positions beyond the context of the first training.
bool stretches(std::string_view key, const model::ModelConfig& m) {
  using enum model::RopeScaling;
  const model::RopeScaling kind = m.rope.scaling;
  if (kind == kNone || kind == kProportional) return false;
  constexpr std::array kKeys = {"rope.scaling",
                                "rope.scaled_layers",
                                "rope.factor",
                                "rope.low_freq_factor",
                                "rope.high_freq_factor",
                                "rope.original_positions",
                                "rope.beta_fast",
                                "rope.beta_slow",
                                "rope.truncate",
                                "rope.attention_factor",
                                "rope.short_factor",
                                "rope.long_factor",
                                "rope.alpha"};
  // A number instead of a rule contains the factor that YaRN wants.
  const bool scaled = key == "attn.scale" && kind == kYarn;
  return scaled || std::ranges::find(kKeys, key) != kKeys.end();
}

/// The keys of a file of configs/zoo, whose lines are `key = value   # comment` below `[section]`.
std::vector<Option> keys_of(const PublishedText& text) {
  std::vector<Option> keys;
  std::string section;
  std::istringstream lines{std::string(text.toml)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const size_t equals = line.find(" = ");
    if (line.starts_with('#') || equals == std::string::npos) continue;
    const size_t hash = line.find(" #", equals);
    std::string value = line.substr(equals + 3, hash == std::string::npos ? hash : hash - equals - 3);
    value.erase(value.find_last_not_of(' ') + 1);
    std::string comment;
    if (hash != std::string::npos) comment = line.substr(line.find_first_not_of("# ", hash));
    keys.push_back({.key = str_cat(section, ".", line.substr(0, equals)), .value = value, .comment = comment});
  }
  return keys;
}

Family family_of(const PublishedText& text) {
  Family family;
  family.id = text.id;
  family.title = zoo::title_of(text);
  family.config = zoo::config_of(text, "configs/zoo", config::Purpose::kModel);
  const model::ModelConfig& m = family.config.model;
  family.parameters = model::count_parameters(m).total();
  family.active = model::active_parameters(m);
  for (Option& option : keys_of(text)) {
    if (stretches(option.key, m)) {
      family.left_out.push_back(option.key);
    } else if (!depends_on_size(option.key)) {
      family.options.push_back(std::move(option));
    }
  }
  return family;
}

/// The names and ids, the nearest to `name` first.
std::string nearest_first(std::string_view name) {
  std::vector<std::string> names = family_names();
  const auto distance = [&](const std::string& known) { return edit_distance(name, known); };
  std::ranges::stable_sort(names, {}, distance);
  return comma_list(names);
}

}  // namespace

std::vector<std::string> family_names() {
  std::set<std::string> all;
  for (const PublishedText& text : zoo::published_texts()) all.insert(words_before_size(text.id));
  std::vector<std::string> names;
  for (const std::string& name : all) {
    const bool member =
        std::ranges::any_of(all, [&](const std::string& other) { return other != name && is_of(other, name); });
    if (!member) names.push_back(name);
  }
  return names;
}

Family find_family(std::string_view name, int64_t parameters) {
  std::vector<Family> members;
  for (const PublishedText& text : zoo::published_texts())
    if (text.id == name) members.push_back(family_of(text));
  const std::vector<std::string> names = family_names();
  if (members.empty() && std::ranges::find(names, name) != names.end())
    for (const PublishedText& text : zoo::published_texts())
      if (is_of(name, text.id)) members.push_back(family_of(text));
  if (members.empty())
    throw input_error("new", "option --like = ", printable(name), ": expected a family or a model of ashlar zoo; ",
                      "families, the nearest first: ", nearest_first(name));
  const auto distance = [&](const Family& family) {
    // A model with experts is farther away than any dense model.
    const double experts = family.config.model.moe.experts > 0 ? 100 : 0;
    return experts + std::abs(std::log(static_cast<double>(family.parameters) / static_cast<double>(parameters)));
  };
  return std::move(*std::ranges::min_element(members, {}, distance));
}

}  // namespace ashlar::new_config
