#pragma once

#include <cstdlib>
#include <string_view>

namespace ashlar::testing {

/// The long form of the tests is asked for: ASHLAR_LONG=1 (./check --long sets it).
inline bool long_form() {
  const char* value = std::getenv("ASHLAR_LONG");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace ashlar::testing
