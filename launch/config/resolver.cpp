#include "launch/config/resolver.h"

#include "core/base/printable.h"

namespace ashlar::config {

Resolver::Resolver(const RawValues& raw, const Facts& facts)
    : raw_(raw), facts_(facts), invalid_(raw.bad), errors_(raw.errors) {
  for (const KeySpec& spec : schema()) {
    const size_t i = index_of(spec);
    const bool required = spec.need == Need::kModel || (spec.need == Need::kTrain && facts.purpose == Purpose::kTrain);
    if (required && !raw.given[i] && raw.bad[i] == 0) {
      invalid_[i] = 1;
      error(spec.name(), ": missing, expected ", expectation(spec), "; e.g. ", example_line(spec));
    }
    const bool has_value = raw.given[i] || spec.need == Need::kDefault || (!is_valid(i) && spec.type == KeyType::kInt);
    if (has_value && spec.member.set != nullptr) spec.member.set(config_, value_of(spec));
  }
  const RunConfig as_given = config_;
  for (const KeySpec& spec : schema()) {
    if (applies(spec, as_given)) continue;
    bool known = true;
    for (const std::string_view key : split_words(spec.when.reads)) known = known && valid({key});
    const std::optional<Value>& given = raw.given[index_of(spec)];
    const bool stands =
        spec.when.default_stands && given && spec.need == Need::kDefault && *given == fallback_value(spec);
    if (known && given && !stands) not_applicable(spec);
    if (spec.member.set == nullptr) continue;
    if (const std::optional<Value> untouched = spec.member.get(RunConfig{})) spec.member.set(config_, *untouched);
  }
}

bool Resolver::given(std::string_view key) const { return raw_.given[key_index(key)].has_value(); }

std::string Resolver::origin(std::string_view key) const {
  const auto kept = raw_.kept_from.find(key_index(key));
  return kept == raw_.kept_from.end() ? "" : str_cat(" (", key, " comes from ", kept->second, ")");
}

bool Resolver::valid(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys)
    if (invalid_[key_index(key)] != 0) return false;
  return true;
}

Value Resolver::value_of(const KeySpec& spec) const {
  const size_t i = index_of(spec);
  if (raw_.given[i]) return *raw_.given[i];
  if (spec.need == Need::kDefault) return fallback_value(spec);
  if (!is_valid(i) && spec.type == KeyType::kInt) return int64_t{1};
  return int64_t{0};
}

void Resolver::record(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
                      std::string_view rule) {
  if (!valid(from)) mark_invalid(key);
  if (valid({key})) derived_.push_back({std::string(key), value_text(value), std::string(rule)});
}

void Resolver::derive(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
                      std::string_view rule) {
  if (given(key)) return;
  record(key, value, from, rule);
  set(key, value);
}

void Resolver::not_applicable(const KeySpec& spec) {
  const std::string key = spec.name();
  error(key, " = ", escaped(value_text(value_of(spec)), 200), ": expected only when ", spec.when.text, "; remove ", key,
        ", or give ", key, "=default on the command line");
}

}  // namespace ashlar::config
