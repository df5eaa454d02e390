#include "launch/new_config/annotated_toml.h"

#include <sstream>
#include <utility>

#include "core/base/strings.h"
#include "launch/config/schema.h"

namespace ashlar::new_config {

namespace {

constexpr size_t kColumns = 120, kCommentColumn = 26;

}  // namespace

void AnnotatedToml::set(std::string_view key, std::string value, std::string comment) {
  rows_[config::key_index(key)] = {std::move(value), std::move(comment)};
}

void AnnotatedToml::set(std::string_view key, int64_t value, std::string comment) {
  set(key, str_cat(value), std::move(comment));
}

void AnnotatedToml::set_number(std::string_view key, double value, std::string comment) {
  std::string text = str_cat(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  set(key, std::move(text), std::move(comment));
}

bool AnnotatedToml::has(std::string_view key) const { return rows_.contains(config::key_index(key)); }

std::string as_comment(std::string_view text) {
  std::string lines, line = "#";
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kColumns) {
      lines += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return lines + line + "\n";
}

std::string AnnotatedToml::text() const {
  std::string text;
  for (const config::SectionDoc& section : config::sections()) {
    bool begun = false;
    for (const auto& [index, row] : rows_) {
      const config::KeySpec& spec = config::schema()[index];
      if (spec.section != std::string_view(section.section)) continue;
      if (!std::exchange(begun, true)) text += str_cat(text.empty() ? "" : "\n", "[", section.section, "]\n");
      std::string line = str_cat(spec.key, " = ", row.value);
      const size_t padding = line.size() < kCommentColumn ? kCommentColumn - line.size() : 3;
      if (row.comment.empty()) {
        text += line + "\n";
      } else if (line.size() + padding + 2 + row.comment.size() <= kColumns) {
        text += str_cat(line, std::string(padding, ' '), "# ", row.comment, "\n");
      } else {
        text += str_cat(as_comment(row.comment), line, "\n");
      }
    }
  }
  return text;
}

}  // namespace ashlar::new_config
