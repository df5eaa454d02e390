#include <algorithm>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "launch/config/raw_values.h"

namespace ashlar::config {
namespace {

/// True if the value is below the key's minimum, which means that it was never set. For example, train.sequence_length
/// stays 0 in a configuration that has only a model.
bool is_missing(const KeySpec& spec, const Value& value) {
  const auto below = [&](double v) { return v < spec.low || (spec.low_open && v == spec.low); };
  if (const int64_t* v = std::get_if<int64_t>(&value)) return below(static_cast<double>(*v));
  if (const double* v = std::get_if<double>(&value)) return below(*v);
  return false;
}

template <typename Selects>
std::vector<Entry> entries_of(const RunConfig& config, const Selects& selects) {
  std::vector<Entry> entries;
  for (const KeySpec& spec : schema()) {
    if (spec.member.get == nullptr || !selects(spec) || !applies(spec, config)) continue;
    std::optional<Value> value = spec.member.get(config);
    if (value && !is_missing(spec, *value)) entries.push_back({index_of(spec), std::move(*value)});
  }
  return entries;
}

std::string toml_of(const std::vector<Entry>& entries) {
  std::string text;
  std::string_view section;
  for (const Entry& entry : entries) {
    const KeySpec& spec = schema()[entry.index];
    if (spec.section != section) {
      section = spec.section;
      text += str_cat(text.empty() ? "[" : "\n[", section, "]\n");
    }
    text += str_cat(std::string_view(spec.key), " = ", value_text(entry.value), "\n");
  }
  return text;
}

}  // namespace

std::vector<Entry> config_entries(const RunConfig& config) {
  return entries_of(config, [](const KeySpec&) { return true; });
}

std::vector<Entry> model_entries(const model::ModelConfig& config) {
  RunConfig run;
  run.model = config;
  return entries_of(run, [](const KeySpec& spec) { return scope_of(spec) != Scope::kRun; });
}

std::vector<std::pair<std::string, std::string>> model_values(const model::ModelConfig& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Entry& entry : model_entries(config))
    values.emplace_back(schema()[entry.index].name(), value_text(entry.value));
  return values;
}

std::vector<ModelDifference> compare_models(const model::ModelConfig& left, const model::ModelConfig& right) {
  const auto brief = [](const Value& value) {
    if (const auto* word = std::get_if<std::string>(&value)) return *word;
    const auto* number = std::get_if<double>(&value);
    return number != nullptr ? str_cat(*number) : value_text(value);
  };
  const std::vector<Entry> others = model_entries(right);
  std::vector<ModelDifference> differences;
  // Adds a difference for each key that has an entry in `have` and none in `lack`, if the key is optional or its value
  // is a list of numbers: such a key is absent in the model of `lack`. Any other key without an entry in `lack` does
  // not apply to that model, and is left out.
  const auto lacking = [&](const std::vector<Entry>& have, const std::vector<Entry>& lack, bool is_left) {
    for (const Entry& entry : have) {
      const bool may_be_absent =
          std::holds_alternative<std::vector<double>>(entry.value) || schema()[entry.index].need == Need::kOptional;
      if (!may_be_absent) continue;
      const bool found = std::ranges::any_of(lack, [&](const Entry& other) { return other.index == entry.index; });
      if (found) continue;
      const std::string text = value_text(entry.value);
      differences.push_back({schema()[entry.index].name(), is_left ? text : "none", is_left ? "none" : text});
    }
  };
  lacking(model_entries(left), others, true);
  lacking(others, model_entries(left), false);
  for (const Entry& entry : model_entries(left)) {
    for (const Entry& other : others) {
      if (entry.index != other.index || same_value(entry.value, other.value)) continue;
      ModelDifference d = {schema()[entry.index].name(), brief(entry.value), brief(other.value)};
      if (d.left == d.right) d.left = value_text(entry.value), d.right = value_text(other.value);
      differences.push_back(std::move(d));
    }
  }
  return differences;
}

std::string to_toml(const RunConfig& config) { return toml_of(config_entries(config)); }

std::string model_to_toml(const model::ModelConfig& config) { return toml_of(model_entries(config)); }

std::string value_line(const std::string& key, const std::string& text) {
  const KeySpec& spec = schema()[key_index(key)];
  if (const auto error = check_value(spec, text, "to be written")) throw ConfigError({*error});
  return str_cat(std::string_view(spec.key), " = ", value_text(text));
}

RunConfig stored_config(const std::string& text, const std::string& name) {
  RawConfig raw = parse_config(text, name, {});
  if (raw.values().bad[key_index("run.device")] != 0) raw = parse_config(text, name, {"run.device=default"});
  return resolve(raw, {.purpose = Purpose::kModel}).config;
}

uint64_t config_hash(const RunConfig& config) {
  std::vector<Entry> entries = config_entries(config);
  std::erase_if(entries, [](const Entry& entry) { return entry.index == key_index("run.threads"); });
  return hash64(toml_of(entries));
}

std::vector<ConfigChange> compare_configs(const RunConfig& before, const RunConfig& after) {
  std::vector<std::string> old_values(schema().size()), new_values(schema().size());
  for (const Entry& entry : config_entries(before)) old_values[entry.index] = value_text(entry.value);
  for (const Entry& entry : config_entries(after)) new_values[entry.index] = value_text(entry.value);
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < schema().size(); ++i) {
    if (old_values[i] == new_values[i]) continue;
    const auto text = [](const std::string& value) { return value.empty() ? std::string("(none)") : value; };
    changes.push_back({schema()[i].name(), text(old_values[i]), text(new_values[i]), schema()[i].fixed});
  }
  return changes;
}

namespace {

/// True if the key appears or vanishes because a key that its condition reads has changed and may not. The error of the
/// other key is enough.
bool follows_from_fixed(const ConfigChange& change, std::span<const ConfigChange> all, const RunConfig& stored,
                        const RunConfig& wanted) {
  const KeySpec& spec = schema()[key_index(change.key)];
  if (applies(spec, stored) == applies(spec, wanted)) return false;
  const std::vector<std::string_view> reads = split_words(spec.when.reads);
  return std::ranges::any_of(all, [&](const ConfigChange& other) {
    return other.fixed && std::ranges::find(reads, other.key) != reads.end();
  });
}

}  // namespace

std::vector<ConfigChange> check_resume(const RunConfig& stored, const RunConfig& wanted) {
  std::vector<ConfigChange> free_changes;
  std::vector<std::string> errors;
  const bool same_optimizer = stored.optimizer.rule.kind == wanted.optimizer.rule.kind;
  const std::vector<ConfigChange> changes = compare_configs(stored, wanted);
  for (const ConfigChange& change : changes) {
    if (follows_from_fixed(change, changes, stored, wanted)) continue;
    // If optimizer.kind differs, keys whose defaults depend on optimizer.kind are not compared.
    if (!same_optimizer && is_of_optimizer(schema()[key_index(change.key)])) continue;
    if (change.fixed)
      errors.push_back(str_cat(change.key, " = ", change.after, ": expected ", change.before,
                               ", the value of the run in ", wanted.run.dir, "; set ", change.key,
                               " back, or choose another run.dir to begin a new run"));
    else
      free_changes.push_back(change);
  }
  if (!errors.empty()) throw ConfigError(errors);
  return free_changes;
}

}  // namespace ashlar::config
