#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/strings.h"
#include "launch/config/raw_values.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

/// Reads raw values with their defaults, records derived values and collects errors. A key is invalid when its value is
/// wrong, missing, or derived from an invalid key. Checks that involve invalid keys are skipped, so that one mistake
/// gives one error. An invalid key reads as its default, and an invalid integer without a default reads as 1, so that
/// rules can compute with it.
class Resolver {
 public:
  Resolver(const RawValues& raw, const Facts& facts);

  /// The configuration resolved so far. At first every member has the given or default value of its key; a member whose
  /// key has neither, or does not apply, has the default of RunConfig.
  RunConfig& config() { return config_; }

  const Facts& facts() const { return facts_; }
  const RawValues& raw() const { return raw_; }
  bool given(std::string_view key) const;
  /// Returns " (KEY comes from CHECKPOINT)" for a key that apply_run_values() has set; "" for others.
  std::string origin(std::string_view key) const;
  bool valid(std::initializer_list<std::string_view> keys) const;

  int64_t integer(std::string_view key) const { return get<int64_t>(key); }
  double number(std::string_view key) const { return get<double>(key); }
  std::string word(std::string_view key) const { return get<std::string>(key); }
  /// Returns the given value or the default; T{} for a key that has neither.
  template <typename T>
  T get(std::string_view key) const {
    const Value value = value_of(key);
    const T* typed = std::get_if<T>(&value);
    return typed != nullptr ? *typed : T{};
  }
  Value value_of(std::string_view key) const { return value_of(schema()[key_index(key)]); }
  Value value_of(const KeySpec& spec) const;

  /// Sets a derived key that was not given, and records its rule for printing. The key becomes invalid if a key in
  /// `from` is invalid.
  void derive(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
              std::string_view rule);
  void set(std::string_view key, const Value& value) { schema()[key_index(key)].member.set(config_, value); }
  void record(std::string_view key, const Value& value, std::initializer_list<std::string_view> from,
              std::string_view rule);

  /// Adds an error when `key` is given although its condition (the schema's `when`) does not hold. Needed only for keys
  /// whose condition is tested by a rule in resolve*.cpp; the constructor checks the other keys.
  void only_when(std::string_view key, bool condition, std::initializer_list<std::string_view> from) {
    if (given(key) && !condition && valid(from)) not_applicable(schema()[key_index(key)]);
  }
  template <typename... Parts>
  void error(const Parts&... parts) {
    errors_.push_back(str_cat(parts...));
  }
  void mark_invalid(std::string_view key) { invalid_[key_index(key)] = 1; }

  const std::vector<std::string>& errors() const { return errors_; }
  std::vector<DerivedValue>& derived() { return derived_; }

 private:
  void not_applicable(const KeySpec& spec);
  bool is_valid(size_t index) const { return invalid_[index] == 0; }

  const RawValues& raw_;
  const Facts& facts_;
  std::vector<uint8_t> invalid_;
  std::vector<std::string> errors_;
  std::vector<DerivedValue> derived_;
  RunConfig config_;
};

void resolve_model(Resolver& r);

}  // namespace ashlar::config
