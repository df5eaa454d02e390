#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "launch/tasks/records.h"

namespace ashlar::tasks {

/// Reads the list under `key` of a YAML file, whose entries are maps:
///
///     key:
///     -
///       name: text        # comment
///       other: "text\n"
///       numbers: [10]
///
/// A record has a text or a list of texts for each name of an entry, and null for values of any other form. Other keys
/// at the top of the file are passed over. Throws a damaged-data error that names the line of anything else.
std::vector<Record> read_yaml_list(const std::filesystem::path& path, std::string_view key);

}  // namespace ashlar::tasks
