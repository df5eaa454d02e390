#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

// Shared by the files of this folder; not part of its interface.
namespace ashlar::config {

std::string trimmed(std::string_view text);

/// Returns the first line, counted from 0, in which keys, lists and tables are nested deeper than io::kMaxJsonDepth, or
/// nothing. The limit is needed because the parser makes a table for each part of a dotted key, and code that walks the
/// tables recurses once per level. For text that is not TOML the result is unspecified.
std::optional<size_t> too_deep(std::string_view text);

}  // namespace ashlar::config
