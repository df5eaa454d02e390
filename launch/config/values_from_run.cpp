#include <algorithm>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/config/raw_values.h"

namespace ashlar::config {
namespace {

/// Returns the value of a key before rules apply: the given value or the default.
Value wanted_value(const RawValues& raw, const KeySpec& spec) {
  const std::optional<Value>& given = raw.given[index_of(spec)];
  return given ? *given : fallback_value(spec);
}

/// True if the keys that the condition of `spec` reads have the same values as in the stored configuration, and the
/// condition holds there. For example, the condition of schedule.decay_steps reads schedule.kind.
bool same_condition(const RawValues& raw, const KeySpec& spec, const RunConfig& stored) {
  for (const std::string_view key : split_words(spec.when.reads)) {
    const KeySpec& read = schema()[key_index(key)];
    if (read.member.get(stored) != wanted_value(raw, read)) return false;
  }
  return applies(spec, stored);
}

/// Returns the older key for the same quantity in other units (train.eval_batches for train.eval_sequences), or null.
const KeySpec* older_form(const KeySpec& spec) {
  const auto keys = schema();
  const auto found = std::ranges::find_if(keys, [&](const KeySpec& key) { return key.older_form_of == spec.name(); });
  return found == keys.end() ? nullptr : &*found;
}

/// `older` is train.eval_batches, and it is given. True if the stored train.eval_sequences was computed from the given
/// value. A value in the file counts as such, because it was already there when the run began. A value on the command
/// line counts if it yields the stored number of sequences.
bool is_settled(const RawValues& raw, const KeySpec& older, const RunConfig& stored) {
  if (raw.overridden[index_of(older)] == 0) return true;
  const double batches = static_cast<double>(std::get<int64_t>(*raw.given[index_of(older)]));
  const double made = batches * static_cast<double>(stored.train.micro_batch * stored.mesh.data);
  return made == static_cast<double>(stored.train.eval_sequences);
}

}  // namespace

std::vector<DerivedValue> apply_run_values(RawConfig& config, const RunConfig& stored, const std::string& where) {
  RawValues& raw = config.values();
  std::vector<DerivedValue> kept;
  if (stored.train.steps == 0) return kept;  // an import, which has no schedule
  for (const KeySpec& spec : schema()) {
    const size_t index = index_of(spec);
    if (!spec.kept || raw.given[index] || raw.bad[index] != 0 || !same_condition(raw, spec, stored)) continue;
    const std::optional<Value> value = spec.member.get(stored);
    std::string rule = str_cat("from ", escaped(where));
    bool told = false;
    if (const KeySpec* older = older_form(spec); older != nullptr && raw.given[index_of(*older)]) {
      if (!is_settled(raw, *older, stored)) continue;
      rule += str_cat("; ", older->name(), " = ", value_text(*raw.given[index_of(*older)]),
                      " was applied when the run began, set ", spec.name(), " for another number");
      raw.given[index_of(*older)].reset();
      told = true;
    }
    raw.given[index] = value;
    raw.kept_from[index] = escaped(where);
    kept.push_back({spec.name(), value_text(*value), std::move(rule), told});
  }
  return kept;
}

}  // namespace ashlar::config
