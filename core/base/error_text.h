#pragma once

#include <string_view>

#include "core/base/error.h"

namespace ashlar {

/// The text of an error without its `[where] `, to quote it in another error.
inline std::string_view text_of(const Error& error) {
  const std::string_view full = error.what();
  return full.starts_with('[') ? full.substr(full.find(' ') + 1) : full;
}

}  // namespace ashlar
