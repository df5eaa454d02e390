#pragma once

#include <string_view>

#include "core/base/error.h"

namespace ashlar {

/// Returns the text of an error without its prefix `[where] `, so that another error can quote it. The text between the
/// brackets may contain spaces.
inline std::string_view text_of(std::string_view full) {
  const size_t end = full.starts_with('[') ? full.find("] ") : full.npos;
  return end == full.npos ? full : full.substr(end + 2);
}
inline std::string_view text_of(const Error& error) { return text_of(std::string_view(error.what())); }

/// Returns the first line of a text. Of an error that lists several problems, it is the first of them.
inline std::string_view first_line_of(std::string_view text) { return text.substr(0, text.find('\n')); }

}  // namespace ashlar
