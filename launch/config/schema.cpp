#include "core/optim/update_rule.h"
#include "launch/config/raw_values.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/strings.h"

namespace ashlar::config {
namespace {

std::string plain_number(double v) {
  char text[32];
  const bool whole = v == static_cast<double>(static_cast<int64_t>(v)) && v > -1e15 && v < 1e15;
  const auto end = whole ? std::to_chars(text, text + sizeof text, static_cast<int64_t>(v))
                         : std::to_chars(text, text + sizeof text, v);
  return std::string(text, end.ptr);
}

std::string range_text(const KeySpec& s) {
  const std::string low = plain_number(s.low), high = plain_number(s.high);
  if (s.low_open) return str_cat("above ", low, s.high_open ? " and below " : ", at most ", high);
  if (s.high_open) return str_cat("from ", low, " to below ", high);
  return str_cat("from ", low, " to ", high);
}

std::string word_list(const KeySpec& s) {
  std::string text;
  for (const std::string_view word : words_of(s)) text += str_cat(text.empty() ? "\"" : ", \"", word, "\"");
  return text;
}

/// Returns the default for each optimizer.kind, in the form ": adamw 0.9, ...".
std::string defaults_by_optimizer(const KeySpec& s) {
  std::string text;
  for (const auto& [kind, name] : optim::names_of(optim::OptimizerKind{})) {
    RunConfig config;
    config.optimizer.rule.kind = kind;
    if (applies(s, config))
      text += str_cat(text.empty() ? ": " : ", ", name, " ", value_text(default_of_optimizer(s, kind)));
  }
  return text;
}

bool quoted_type(const KeySpec& s) {
  if (s.type == KeyType::kWord || s.type == KeyType::kString || s.type == KeyType::kSources) return true;
  if (s.type != KeyType::kNumberOrWord) return false;
  const char first = s.fallback[0];
  return (first < '0' || first > '9') && first != '-';
}

}  // namespace

std::string KeySpec::name() const { return str_cat(section, ".", key); }

Scope scope_of(const KeySpec& spec) {
  // The losses of the router and the rate of its bias are part of the training, and the place of experts of the mesh,
  // unlike the other keys of their section.
  for (const char* other : {"moe.balance", "moe.balance_coef", "moe.bias_rate", "moe.z_coef", "moe.tensor"})
    if (spec.name() == other) return Scope::kModel;
  for (const SectionDoc& section : sections())
    if (std::string_view(section.section) == spec.section) return section.scope;
  throw Bug(str_cat("no section ", spec.section, " in the schema"));
}

bool is_weights_key(const KeySpec& spec) { return scope_of(spec) == Scope::kWeights && spec.name() != "vocab.pad_to"; }

bool applies(const KeySpec& spec, const RunConfig& config) {
  return spec.when.holds == nullptr || spec.when.holds(config);
}

const KeySpec* find_key(std::string_view section, std::string_view key) {
  for (const KeySpec& spec : schema())
    if (spec.key == key && spec.section == section) return &spec;
  return nullptr;
}

size_t index_of(const KeySpec& spec) { return static_cast<size_t>(&spec - schema().data()); }

size_t key_index(std::string_view name) {
  const size_t dot = name.find('.');
  const KeySpec* found = dot == name.npos ? nullptr : find_key(name.substr(0, dot), name.substr(dot + 1));
  ASHLAR_CHECK(found != nullptr, "no key ", name, " in the schema");
  return index_of(*found);
}

namespace {

/// Longer names get no suggestion: they are not misspelt keys, and comparing them is slow.
constexpr size_t kLongestName = 60;

}  // namespace

std::string nearest_section(std::string_view name) {
  if (name.size() > kLongestName) return "";
  std::string_view best;
  size_t best_distance = 0;
  for (const SectionDoc& s : sections()) {
    const std::string_view known = s.section;
    size_t distance = edit_distance(known, name);
    if (name.size() >= 3 && (known.starts_with(name) || name.starts_with(known)))
      distance = std::min<size_t>(distance, 1);
    if (is_slip(distance, known, name) && (best.empty() || distance < best_distance))
      best = known, best_distance = distance;
  }
  return std::string(best);
}

std::string section_list() { return comma_list(sections(), &SectionDoc::section); }

std::string section_guess(std::string_view name) {
  const std::string near = nearest_section(name);
  return near.empty() ? str_cat("expected one of ", section_list()) : str_cat("did you mean the section ", near, "?");
}

namespace {

constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"activation_function", "ffn.act"},
    {"attention_multiplier", "attn.scale"},
    {"attn_logit_softcapping", "attn.softcap"},
    {"embedding_multiplier", "embed.scale"},
    {"ffn_dim", "model.d_ff"},
    {"ffn_hidden_size", "model.d_ff"},
    {"final_logit_softcapping", "head.softcap"},
    {"head.scale", "head.logit_scale"},
    {"heads", "model.n_heads"},
    {"hidden_act", "ffn.act"},
    {"hidden_dim", "model.d_model"},
    {"hidden_size", "model.d_model"},
    {"intermediate_size", "model.d_ff"},
    {"layer_norm_epsilon", "norm.eps"},
    {"layer_norm_eps", "norm.eps"},
    {"logits_scaling", "head.logit_scale"},
    {"max_position_embeddings", "pos.max_positions"},
    {"moe_intermediate_size", "moe.d_ff"},
    {"n_embd", "model.d_model"},
    {"n_head", "model.n_heads"},
    {"n_inner", "model.d_ff"},
    {"n_layer", "model.n_layers"},
    {"n_positions", "pos.max_positions"},
    {"n_routed_experts", "moe.experts"},
    {"no_rope_layers", "rope.base_cycle"},
    {"norm_topk_prob", "moe.renormalize"},
    {"num_attention_heads", "model.n_heads"},
    {"num_experts", "moe.experts"},
    {"num_experts_per_tok", "moe.top_k"},
    {"num_heads", "model.n_heads"},
    {"num_hidden_layers", "model.n_layers"},
    {"num_key_value_heads", "model.n_kv_heads"},
    {"num_local_experts", "moe.experts"},
    {"original_max_position_embeddings", "rope.original_positions"},
    {"partial_rotary_factor", "rope.fraction"},
    {"qk_layernorm", "attn.qk_norm"},
    {"query_pre_attn_scalar", "attn.scale"},
    {"rms_norm_eps", "norm.eps"},
    {"rope_local_base_freq", "rope.local_base"},
    {"rope_scaling", "rope.scaling"},
    {"rope_theta", "rope.base"},
    {"rope_type", "rope.scaling"},
    {"rotary_dim", "rope.dims"},
    {"rotary_pct", "rope.fraction"},
    {"routed_scaling_factor", "moe.scale"},
    {"router_aux_loss_coef", "moe.balance_coef"},
    {"sliding_window", "attn.window_cycle"},
    {"theta", "rope.base"},
    {"tie_word_embeddings", "head.tie"},
    {"tie_embeddings", "head.tie"},
    {"wd", "optimizer.weight_decay"},
    {"windows", "attn.window_cycle"},
    {"z_loss", "loss.z_coef"},
};

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> other_names() { return kOtherNames; }

std::string nearest_key(std::string_view section, std::string_view key) {
  if (section.size() > kLongestName || key.size() > kLongestName) return "";
  const std::string whole = str_cat(section, ".", key);
  for (const auto& [other, name] : kOtherNames)
    if (key == other || whole == other) return std::string(name);
  if (const KeySpec* turned = find_key(key, section)) return turned->name();
  if (!section.empty() && nearest_section(section).empty()) {
    bool known_key = false;
    for (const KeySpec& spec : schema()) known_key = known_key || spec.key == key;
    if (!known_key) return "";
  }
  const KeySpec* best = nullptr;
  size_t best_distance = 0;
  for (const KeySpec& spec : schema()) {
    const std::string_view known = spec.key;
    size_t distance = section.empty() ? edit_distance(known, key) : edit_distance(spec.name(), whole);
    // The right key in the wrong section, or the beginning of a long key, is a likelier mistake than many wrong
    // letters.
    if (known == key) distance = std::min<size_t>(distance, 1);
    if (key.size() >= 4 && known.starts_with(key)) distance = std::min<size_t>(distance, 2);
    const bool one_holds_other = known.size() >= 3 && (key.find(known) != key.npos || known.find(key) != known.npos);
    if (spec.section == section && key.size() >= 3 && one_holds_other) distance = std::min<size_t>(distance, 2);
    if (best == nullptr || distance < best_distance) best = &spec, best_distance = distance;
  }
  const bool near =
      section.empty() ? is_slip(best_distance, best->key, key) : is_slip(best_distance, best->name(), whole);
  return near ? best->name() : "";
}

std::string expectation(const KeySpec& s) {
  switch (s.type) {
    case KeyType::kInt: return str_cat("an integer ", range_text(s));
    case KeyType::kNumber: return str_cat("a number ", range_text(s));
    case KeyType::kBool: return "true or false";
    case KeyType::kString: return "a non-empty string";
    case KeyType::kWord: return str_cat(words_of(s).size() == 1 ? "" : "one of ", word_list(s));
    case KeyType::kNumberOrWord: return str_cat("a number ", range_text(s), *s.words == 0 ? "" : ", or ", word_list(s));
    case KeyType::kKeyList: return "a list of model keys, not empty";
    case KeyType::kNameList: return "a list of names, not empty";
    case KeyType::kIntList: return str_cat("a list of integers ", range_text(s), ", not empty");
    case KeyType::kNumberList: return str_cat("a list of numbers ", range_text(s), ", not empty");
    case KeyType::kSources: return "a path, or a list of {path = \"...\", weight = 1.0}";
  }
  throw Bug("KeyType out of range");
}

std::string example_line(const KeySpec& s) {
  if (*s.example != 0) return str_cat(s.name(), " = ", s.example);
  return quoted_type(s) ? str_cat(s.name(), " = \"", s.fallback, "\"") : str_cat(s.name(), " = ", s.fallback);
}

bool is_of_optimizer(const KeySpec& spec) { return std::string_view(spec.rule) == kRuleOfOptimizer; }

Value default_of_optimizer(const KeySpec& spec, optim::OptimizerKind kind) {
  RunConfig config;
  config.optimizer.rule = optim::rule_of(kind).defaults;
  return *spec.member.get(config);
}

std::string default_text(const KeySpec& s) {
  switch (s.need) {
    case Need::kDefault: return quoted_type(s) ? str_cat("\"", s.fallback, "\"") : s.fallback;
    case Need::kDerived: return str_cat(s.rule, is_of_optimizer(s) ? defaults_by_optimizer(s) : "");
    case Need::kOptional: return "absent";
    case Need::kModel: return "must be given";
    case Need::kTrain: return "must be given to train";
  }
  throw Bug("Need out of range");
}

std::vector<std::string_view> split_words(const char* words) {
  std::vector<std::string_view> parts;
  std::string_view rest(words);
  while (!rest.empty()) {
    const size_t bar = rest.find('|');
    parts.push_back(rest.substr(0, bar));
    rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
  }
  return parts;
}

std::vector<std::string_view> words_of(const KeySpec& spec) {
  if (*spec.words != 0 || spec.member.words == nullptr) return split_words(spec.words);
  std::vector<std::string_view> words = spec.member.words();
  const std::vector<std::string_view> refused = split_words(spec.unsupported);
  std::erase_if(words, [&](std::string_view word) { return std::ranges::find(refused, word) != refused.end(); });
  return words;
}

}  // namespace ashlar::config
