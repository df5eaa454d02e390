#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace ashlar::tasks {

/// A record of a published file: an object of JSON, or a list of texts for a row of CSV. `place` names it in errors:
/// the file and the line.
struct Record {
  std::shared_ptr<const nlohmann::json> value;
  std::string place;
};
Record make_record(nlohmann::json value, std::string place);
/// Returns the place of a record of a file: "'FILE', line 3".
std::string place_of(const std::filesystem::path& path, const char* unit, size_t number);

/// Reads a file with a JSON object on each line. Throws a damaged-data error that names the line.
std::vector<Record> read_json_lines(const std::filesystem::path& path);
/// Reads a file that is one JSON array of objects; a record's place is its number in the array.
std::vector<Record> read_json_array(const std::filesystem::path& path);
/// Reads a file of comma-separated values without a header (RFC 4180), with `columns` values in each row.
std::vector<Record> read_csv(const std::filesystem::path& path, size_t columns);
/// Reads a file of comma-separated values whose first row names the columns. A record is an object: column to text.
std::vector<Record> read_csv_table(const std::filesystem::path& path);
/// Reads the lines of a text file.
std::vector<std::string> read_lines(const std::filesystem::path& path);

/// Returns the damaged-data error of a record.
Error bad_record(const Record& record, std::string_view problem);

/// A value of a record by the names or indices that lead to it, e.g. {"question", "stem"}. Throws bad_record if there
/// is no such value, or it has another type.
using Path = std::vector<std::string_view>;
const nlohmann::json& value_at(const Record& record, const Path& path);
std::string text_at(const Record& record, const Path& path);
int64_t integer_at(const Record& record, const Path& path);
bool bool_at(const Record& record, const Path& path);

}  // namespace ashlar::tasks
