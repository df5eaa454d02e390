#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

std::string trimmed(std::string_view text);

/// The line, counted from 0, in which keys, lists and tables of a TOML text lie deeper in each other than
/// io::kMaxJsonDepth; nothing where none do. The parser makes a table of each part of a dotted key, and whoever walks
/// them calls himself once a level. A text that is no TOML may be told either way.
std::optional<size_t> too_deep(std::string_view text);

}  // namespace ashlar::config
