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
/// keys gives the names of one value: several of them may be present, and then they must agree. Errors are collected. A
/// call that finds an error returns its fallback.
class JsonReader {
 public:
  using Keys = std::vector<const char*>;

  /// `where` is put before key names in errors, e.g. `rope_scaling.`.
  JsonReader(const nlohmann::json& object, std::string where, std::vector<std::string>& errors,
             std::vector<std::string>& notes);

  /// A reader of an object inside this one, with the same lists of errors and notes.
  JsonReader nested(const nlohmann::json& object, std::string where) const {
    return {object, std::move(where), errors_, notes_};
  }

  bool has(const char* key) const;        ///< present, null or not
  bool has_value(const char* key) const;  ///< present and not null

  /// Returns a size from 1 to 2^31-1. If the key is absent, returns `fallback` and adds a note that the file relies on
  /// the default of the class.
  int64_t size(const Keys& keys, int64_t fallback);
  std::optional<int64_t> optional_size(const Keys& keys);  ///< empty when absent or null
  double number(const Keys& keys, double fallback);
  std::optional<double> optional_number(const Keys& keys);
  bool boolean(const Keys& keys, bool fallback);
  std::string text(const Keys& keys, std::string_view fallback);
  /// Null when absent, null or empty; anything but an object is an error.
  const nlohmann::json* object(const char* key);
  const nlohmann::json* raw(const char* key);  ///< any value; null when absent or null

  /// Returns the value as it is, without marking the key as read. Null when absent or null.
  const nlohmann::json* peek(const char* key) const;

  /// Marks keys as read that change nothing in this class.
  void ignore(const Keys& keys);
  /// An error of the form `KEY = VALUE: TEXT`.
  template <typename... Parts>
  void refuse(const char* key, const Parts&... parts) {
    add_error(str_cat(shown(key), ": ", parts...));
  }
  /// Adds an error with a text of its own.
  void add_error(std::string text) { errors_.push_back(std::move(text)); }
  size_t num_errors() const { return errors_.size(); }  ///< errors of all readers that share the list
  void add_note(std::string text) { notes_.push_back(std::move(text)); }

  bool was_read(const char* key) const { return read_.contains(key); }
  std::string shown(const char* key) const;  ///< `KEY = VALUE`
  std::vector<std::string> unread_keys() const;

 private:
  const nlohmann::json* find(const Keys& keys, const char** name);
  /// The value if `is` accepts it; an error that says what was expected if not.
  template <typename T, typename Is>
  T typed(const Keys& keys, T fallback, const Is& is, const char* expected);

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string>& errors_;
  std::vector<std::string>& notes_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace ashlar::hf
