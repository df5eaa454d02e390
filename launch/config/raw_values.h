#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/config/schema.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

struct RawValues {
  explicit RawValues(std::string file_name);
  std::string run_dir() const;  ///< given, else derived from the file name; empty when invalid

  std::string name;                         ///< name of the file in messages
  std::vector<std::optional<Value>> given;  ///< indexed like schema()
  std::vector<uint8_t> bad;                 ///< given but invalid: `errors` has the error
  std::vector<uint8_t> overridden;          ///< has an override: the value of the file is not checked
  std::map<size_t, std::string> kept_from;  ///< keys that have the value of a checkpoint (apply_run_values)
  std::vector<std::string> errors;
  int64_t unknown = 0;  ///< number of unknown keys and sections; the first few have errors
  bool is_toml = true;  ///< false: the file could not be parsed, so its keys are not checked
};

/// The default of a Need::kDefault key as a value.
Value fallback_value(const KeySpec& spec);

/// Compares two values; numbers are equal if they differ by rounding only, since two programs may round the same
/// formula differently.
bool same_value(const Value& a, const Value& b);

/// Returns a value as TOML: the shortest text that reads back to the same value, strings quoted.
std::string value_text(const Value& value);

/// `section.key = got: expected ...; e.g. ...` with the place (`x.toml:3`, `command line`) at the end.
std::string value_error(const KeySpec& spec, std::string_view got, std::string_view place);

/// Checks the range, the word and the support of a value of the right type. Returns the error text if the value is
/// wrong.
std::optional<std::string> check_value(const KeySpec& spec, const Value& value, std::string_view place);

/// Every applicable key of a resolved config with its value, in schema order.
struct Entry {
  size_t index;
  Value value;
};
std::vector<Entry> config_entries(const RunConfig& config);
std::vector<Entry> model_entries(const model::ModelConfig& config);

}  // namespace ashlar::config
