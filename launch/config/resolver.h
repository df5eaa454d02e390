#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/strings.h"
#include "launch/config/raw_values.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

using model::name_of;  // enums of core are spelled there

/// Reads raw values with their defaults, records what is derived, gathers errors.
/// A key is unsound when it is wrong, missing or derived from one that is; checks on unsound keys are left out, so
/// that one mistake gives one error. Unsound keys read as some value in range.
class Resolver {
 public:
  Resolver(const RawValues& raw, const Facts& facts);

  const Facts& facts() const { return facts_; }
  const RawValues& raw() const { return raw_; }
  bool given(std::string_view key) const;
  bool sound(std::initializer_list<std::string_view> keys) const;

  int64_t integer(std::string_view key) const { return get<int64_t>(key); }
  double number(std::string_view key) const { return get<double>(key); }
  bool flag(std::string_view key) const { return get<bool>(key); }
  std::string word(std::string_view key) const { return get<std::string>(key); }
  /// The given or default value; for a key that is absent without a default, T{}.
  template <typename T>
  T get(std::string_view key) const {
    const Value value = value_of(key);
    const T* typed = std::get_if<T>(&value);
    return typed != nullptr ? *typed : T{};
  }
  const Value value_of(std::string_view key) const;

  /// The given value of a derived key, else `value`, which is recorded with its rule; unsound when a dependency is.
  template <typename T>
  T derive(std::string_view key, T value, std::initializer_list<std::string_view> from, std::string_view rule) {
    if (given(key)) return get<T>(key);
    record(key, Value(value), from, rule);
    return value;
  }
  void record(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
              std::string_view rule);

  /// An error when `key` is given although its condition (the schema's `when`) does not hold.
  void only_when(std::string_view key, bool condition, std::initializer_list<std::string_view> from);
  template <typename... Parts>
  void error(const Parts&... parts) {
    errors_.push_back(str_cat(parts...));
  }
  void mark_unsound(std::string_view key) { unsound_[key_index(key)] = 1; }

  /// The enumerator whose name is the value of `key`.
  template <typename E>
  E choose(std::string_view key, std::initializer_list<E> values) const {
    const std::string text = word(key);
    for (const E v : values)
      if (text == name_of(v)) return v;
    return *values.begin();  // unsound: an error stands already
  }

  const std::vector<std::string>& errors() const { return errors_; }
  std::vector<DerivedValue>& derived() { return derived_; }

 private:
  const RawValues& raw_;
  const Facts& facts_;
  std::vector<uint8_t> unsound_;
  std::vector<std::string> errors_;
  std::vector<DerivedValue> derived_;
};

model::ModelConfig resolve_model(Resolver& r);

/// The value of attn.scale for a rule of its words, e.g. `head_dim^-0.5`.
double attention_scale(const std::string& rule, const model::ModelConfig& m);

}  // namespace ashlar::config
