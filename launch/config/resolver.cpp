#include "launch/config/resolver.h"

namespace ashlar::config {

Resolver::Resolver(const RawValues& raw, const Facts& facts)
    : raw_(raw), facts_(facts), unsound_(raw.bad), errors_(raw.errors) {
  for (const KeySpec& spec : schema()) {
    const size_t i = index_of(spec);
    const bool required = spec.need == Need::kModel || (spec.need == Need::kTrain && facts.purpose == Purpose::kTrain);
    if (!required || raw.given[i] || raw.bad[i]) continue;
    unsound_[i] = 1;
    error(spec.name(), ": missing, expected ", expectation(spec), "; e.g. ", example_line(spec));
  }
}

bool Resolver::given(std::string_view key) const { return raw_.given[key_index(key)].has_value(); }

bool Resolver::sound(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys)
    if (unsound_[key_index(key)] != 0) return false;
  return true;
}

const Value Resolver::value_of(std::string_view key) const {
  const size_t i = key_index(key);
  if (raw_.given[i]) return *raw_.given[i];
  const KeySpec& spec = schema()[i];
  if (spec.need == Need::kDefault) return fallback_value(spec);
  if (unsound_[i] != 0 && spec.type == KeyType::kInt) return int64_t{1};
  return int64_t{0};
}

void Resolver::record(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
                      std::string_view rule) {
  if (!sound(from)) mark_unsound(key);
  if (sound({key})) derived_.push_back({std::string(key), value_text(value), std::string(rule)});
}

void Resolver::only_when(std::string_view key, bool condition, std::initializer_list<std::string_view> from) {
  if (!given(key) || condition || !sound(from)) return;
  const KeySpec& spec = schema()[key_index(key)];
  error(key, " = ", value_text(value_of(key)), ": expected only when ", spec.when, "; remove it, or give ", key,
        "=default on the command line");
}

}  // namespace ashlar::config
