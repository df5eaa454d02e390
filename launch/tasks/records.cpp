#include "launch/tasks/records.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::tasks {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

Error damaged(const std::string& place, std::string_view problem) {
  return damaged_error("tasks", place, ": ", problem,
                       "; the file is damaged or of another version: fetch it again (ashlar data fetch list)");
}

/// Splits a text into rows of comma-separated values. A value in double quotes may have commas, line breaks, and quotes
/// that are written twice.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}

  size_t line() const { return line_; }  ///< of the last row returned
  bool unclosed() const { return unclosed_; }

  std::optional<std::vector<std::string>> next() {
    if (at_ == text_.size()) return std::nullopt;
    line_ = next_line_;
    std::vector<std::string> row(1);
    bool quoted = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      next_line_ += c == '\n' ? 1 : 0;
      if (c == '"' && quoted && at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        row.back() += text_[++at_];
      } else if (c == '"' && (quoted || row.back().empty())) {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        row.emplace_back();
      } else if (c == '\n' && !quoted) {
        ++at_;
        break;
      } else if (c != '\r' || quoted || at_ + 1 == text_.size() || text_[at_ + 1] != '\n') {
        row.back() += c;
      }
    }
    unclosed_ = quoted;
    return row;
  }

 private:
  std::string_view text_;
  size_t at_ = 0, line_ = 0, next_line_ = 1;
  bool unclosed_ = false;
};

std::string dotted(const Path& path) {
  std::string text;
  for (const std::string_view step : path) text += (text.empty() ? "" : ".") + std::string(step);
  return text;
}

nlohmann::json parsed(std::string_view text, const std::string& place) {
  nlohmann::json value;
  io::reading_json([&](const std::string& sentence) { return damaged(place, sentence); },
                   [&] { value = io::parse_json(text); });
  return value;
}

/// Calls `take` with each row of a file of comma-separated values and the row's place.
void read_csv_rows(const std::filesystem::path& path,
                   const std::function<void(const std::vector<std::string>& row, const std::string& place)>& take) {
  const std::string text = io::read_text_file(path, kMostBytes);
  CsvReader reader(text);
  while (const auto row = reader.next()) {
    const std::string place = place_of(path, "line", reader.line());
    if (reader.unclosed()) throw damaged(place, "a quoted value has no closing quote");
    take(*row, place);
  }
}

void require_object(const nlohmann::json& value, const std::string& place) {
  if (!value.is_object()) throw damaged(place, str_cat("expected a JSON object, got ", std::string(value.type_name())));
}

}  // namespace

std::string place_of(const std::filesystem::path& path, const char* unit, size_t number) {
  return str_cat(printable(path.string()), ", ", unit, " ", number);
}

Record make_record(nlohmann::json value, std::string place) {
  return {.value = std::make_shared<const nlohmann::json>(std::move(value)), .place = std::move(place)};
}

Error bad_record(const Record& record, std::string_view problem) { return damaged(record.place, problem); }

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  const std::string text = io::read_text_file(path, kMostBytes);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t length = end - at - (end > at && text[end - 1] == '\r' ? 1 : 0);
    lines.push_back(text.substr(at, length));
    at = end + 1;
  }
  return lines;
}

std::vector<Record> read_json_lines(const std::filesystem::path& path) {
  std::vector<Record> records;
  size_t number = 0;
  for (const std::string& line : read_lines(path)) {
    const std::string place = place_of(path, "line", ++number);
    if (line.find_first_not_of(" \t") == std::string::npos) throw damaged(place, "expected a JSON object, got nothing");
    records.push_back(make_record(parsed(line, place), place));
    require_object(*records.back().value, place);
  }
  return records;
}

std::vector<Record> read_json_array(const std::filesystem::path& path) {
  const std::string place = printable(path.string());
  const nlohmann::json all = parsed(io::read_text_file(path, kMostBytes), place);
  if (!all.is_array()) throw damaged(place, str_cat("expected a JSON array, got ", std::string(all.type_name())));
  std::vector<Record> records;
  for (const nlohmann::json& value : all) {
    records.push_back(make_record(value, place_of(path, "record", records.size() + 1)));
    require_object(value, records.back().place);
  }
  return records;
}

std::vector<Record> read_csv(const std::filesystem::path& path, size_t columns) {
  std::vector<Record> records;
  read_csv_rows(path, [&](const std::vector<std::string>& row, const std::string& place) {
    if (row.size() != columns)
      throw damaged(place, str_cat("expected ", columns, " comma-separated values, got ", row.size()));
    records.push_back(make_record(row, place));
  });
  return records;
}

std::vector<Record> read_csv_table(const std::filesystem::path& path) {
  std::vector<Record> records;
  std::vector<std::string> names;
  read_csv_rows(path, [&](const std::vector<std::string>& row, const std::string& place) {
    if (names.empty()) {
      names = row;
      return;
    }
    if (row.size() != names.size())
      throw damaged(place, str_cat("expected ", names.size(), " comma-separated values, got ", row.size()));
    nlohmann::json value;
    for (size_t i = 0; i < row.size(); ++i) value[names[i]] = row[i];
    records.push_back(make_record(std::move(value), place));
  });
  return records;
}

const nlohmann::json& value_at(const Record& record, const Path& path) {
  const nlohmann::json* at = record.value.get();
  for (const std::string_view step : path) {
    const nlohmann::json* next = nullptr;
    if (at->is_object()) {
      const auto found = at->find(step);
      if (found != at->end()) next = &*found;
    } else if (const auto index = parse_number<size_t>(step); at->is_array() && index && *index < at->size()) {
      next = &(*at)[*index];
    }
    if (next == nullptr) throw bad_record(record, str_cat("it has no field ", dotted(path)));
    at = next;
  }
  return *at;
}

std::string text_at(const Record& record, const Path& path) {
  const nlohmann::json& value = value_at(record, path);
  if (!value.is_string())
    throw bad_record(record,
                     str_cat("field ", dotted(path), ": expected a text, got ", std::string(value.type_name())));
  return value.get<std::string>();
}

int64_t integer_at(const Record& record, const Path& path) {
  const nlohmann::json& value = value_at(record, path);
  if (!value.is_number_integer())
    throw bad_record(record,
                     str_cat("field ", dotted(path), ": expected an integer, got ", std::string(value.type_name())));
  return value.get<int64_t>();
}

bool bool_at(const Record& record, const Path& path) {
  const nlohmann::json& value = value_at(record, path);
  if (!value.is_boolean())
    throw bad_record(record,
                     str_cat("field ", dotted(path), ": expected true or false, got ", std::string(value.type_name())));
  return value.get<bool>();
}

}  // namespace ashlar::tasks
