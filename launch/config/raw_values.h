#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/config/schema.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

struct RawValues {
  explicit RawValues(std::string file_name);
  std::string run_dir() const;  ///< run.dir if given, else derived from the file name; empty if invalid
  /// Returns the given value of a key whose values have the type T; nothing if the key is not given.
  template <typename T>
  std::optional<T> get(std::string_view key) const {
    const std::optional<Value>& value = given[key_index(key)];
    return value ? std::optional(std::get<T>(*value)) : std::nullopt;
  }

  std::string name;                         ///< name of the configuration file, for messages
  std::vector<std::optional<Value>> given;  ///< indexed like schema()
  std::vector<uint8_t> bad;                 ///< 1: the key is given but invalid, and `errors` has its error
  std::vector<uint8_t> overridden;          ///< 1: an override names the key, so the file's value is not checked
  std::map<size_t, std::string> kept_from;  ///< index of a key -> checkpoint that gave its value (apply_run_values)
  std::vector<std::string> errors;
  int64_t unknown = 0;  ///< number of unknown keys and sections; `errors` names the first kMostUnknown of them
  bool is_toml = true;  ///< false: the file could not be parsed, so its keys are not checked
};

/// Returns the default of a Need::kDefault key.
Value fallback_value(const KeySpec& spec);

/// True if two values are equal. Numbers count as equal if their relative difference is at most 1e-12, since two
/// programs may round the same formula differently.
bool same_value(const Value& a, const Value& b);

/// Returns a value as TOML: the shortest text that reads back to the same value, strings quoted.
std::string value_text(const Value& value);

/// Returns the error `section.key = got: expected ...; e.g. ... (PLACE)`, with a place such as `x.toml:3` or `command
/// line`.
std::string value_error(const KeySpec& spec, std::string_view got, std::string_view place);

/// Checks a value that has the type of the key: a number must be in range, a word must be known and supported. Returns
/// the error text if the value is not valid.
std::optional<std::string> check_value(const KeySpec& spec, const Value& value, std::string_view place);

/// A key that applies in a resolved config, with its value. config_entries() returns the entries of all keys,
/// model_entries() those of the model sections; both in schema order.
struct Entry {
  size_t index;
  Value value;
};
std::vector<Entry> config_entries(const RunConfig& config);
std::vector<Entry> model_entries(const model::ModelConfig& config);

}  // namespace ashlar::config
