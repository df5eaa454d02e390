#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace ashlar::new_config {

/// A configuration as text, with a comment for each key. Sections and keys come in the order of the schema.
class AnnotatedToml {
 public:
  /// Sets a key ("model.d_model"; Bug if the schema lacks it) to a TOML value. `comment` says why, in one line.
  void set(std::string_view key, std::string value, std::string comment);
  void set(std::string_view key, int64_t value, std::string comment);
  void set_number(std::string_view key, double value, std::string comment);
  bool has(std::string_view key) const;

  /// The text, with lines of at most 120 columns: a comment that does not fit beside its key stands above it.
  std::string text() const;

 private:
  struct Row {
    std::string value, comment;
  };
  std::map<size_t, Row> rows_;  // by index in the schema
};

/// Text as lines that begin with "# ", each of at most 120 columns.
std::string as_comment(std::string_view text);

}  // namespace ashlar::new_config
