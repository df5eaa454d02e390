#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::data {

/// The fields of one object in the JSON of a tokenizer. Each field is read by name. `finish` throws an input error that
/// names a field that was not read, since an unknown field may change ids. Errors name the file and the path of the
/// field, such as `tokenizer.json: pre_tokenizer.pretokenizers[1].behavior`.
class Fields {
 public:
  static constexpr int kMaxSteps = 64;  ///< maximum number of pipeline steps; published tokenizers have up to 20

  /// `path` precedes the field name in errors, such as "tokenizer.json: model".
  Fields(const nlohmann::json& object, std::string path);

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view key) const;
  bool has(std::string_view key);                    ///< true if present and not null
  const nlohmann::json* find(std::string_view key);  ///< returns a null pointer if the field is absent or null
  const nlohmann::json& array(std::string_view key);
  bool is_text(std::string_view key);              ///< true if present and a string
  size_t length(std::string_view key);             ///< returns the number of entries of a list
  Fields element(std::string_view key, size_t i);  ///< entry i of a list; must be an object
  Fields object(std::string_view key);
  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string_view otherwise);
  bool boolean(std::string_view key, bool otherwise);
  int64_t integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most);

  /// Counts one step of a pipeline. Throws an input error if one file has more than kMaxSteps steps, including nested
  /// ones. The number is limited since each step may compile a pattern.
  void count_step();

  /// Marks fields as read that do not affect ids.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Throws an input error for a value other than null, false, 0, "" or an empty list or object.
  void must_be_off(std::string_view key);
  Error error(std::string_view key, const std::string& sentence) const;
  Error unsupported(std::string_view key, const std::string& known) const;
  void finish() const;

 private:
  Fields(const nlohmann::json& object, std::string path, std::shared_ptr<int> steps);

  const nlohmann::json& object_;
  std::string path_;
  std::shared_ptr<int> steps_;  ///< number of pipeline steps counted in the whole file
  std::set<std::string, std::less<>> read_;
};

}  // namespace ashlar::data
