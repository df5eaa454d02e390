#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/strings.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// Reads keys of one JSON object and remembers which ones were read, so that unread keys can be reported. A list of
/// keys gives alternative names of one value: if several are present, their values must be equal. Errors are collected
/// in a list. A call that finds an error returns its fallback.
class JsonReader {
 public:
  using Keys = std::vector<const char*>;

  /// `where` is put before key names in errors, e.g. `rope_scaling.`.
  JsonReader(const nlohmann::json& object, std::string where, std::vector<std::string>& errors,
             std::vector<std::string>& notes);

  /// Returns a reader of an object inside this one, which adds to the same lists of errors and notes.
  JsonReader nested(const nlohmann::json& object, std::string where) const {
    return {object, std::move(where), errors_, notes_};
  }

  bool has(const char* key) const;        ///< true if present, even as null
  bool has_value(const char* key) const;  ///< true if present and not null

  /// Returns a size from 1 to 2^31-1. If the key is absent, returns `fallback` and adds a note that the file relies on
  /// the default of the class.
  int64_t size(const Keys& keys, int64_t fallback);
  std::optional<int64_t> optional_size(const Keys& keys);  ///< empty when absent or null
  double number(const Keys& keys, double fallback);
  std::optional<double> optional_number(const Keys& keys);
  bool boolean(const Keys& keys, bool fallback);
  std::string text(const Keys& keys, std::string_view fallback);
  /// Returns an object; null if the key is absent, null or an empty object. A value of another type is an error.
  const nlohmann::json* object(const char* key);
  const nlohmann::json* raw(const char* key);  ///< a value of any type; null if absent or null

  /// Returns the value as it is, without marking the key as read. Null when absent or null.
  const nlohmann::json* peek(const char* key) const;

  /// Marks keys that have no effect in this class as read.
  void ignore(const Keys& keys);
  /// Adds an error of the form `KEY = VALUE: TEXT`.
  template <typename... Parts>
  void refuse(const char* key, const Parts&... parts) {
    add_error(str_cat(shown(key), ": ", parts...));
  }
  /// Adds the text as an error, without a key before it.
  void add_error(std::string text) { errors_.push_back(std::move(text)); }
  size_t num_errors() const { return errors_.size(); }  ///< errors of all readers that share the list
  void add_note(std::string text) { notes_.push_back(std::move(text)); }

  bool was_read(const char* key) const { return read_.contains(key); }
  std::string shown(const char* key) const;  ///< returns `KEY = VALUE`
  std::vector<std::string> unread_keys() const;

 private:
  const nlohmann::json* find(const Keys& keys, const char** name);
  /// Returns the value if `is` accepts it. Otherwise adds an error that says what was expected.
  template <typename T, typename Is>
  T typed(const Keys& keys, T fallback, const Is& is, const char* expected);

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string>& errors_;
  std::vector<std::string>& notes_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace ashlar::hf
