#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar::data {

/// What happens to JSON lines (or array elements) that cannot be parsed, and to invalid UTF-8. kStop: both are errors.
/// kSkip: a JSON line that cannot be parsed or has invalid UTF-8 is skipped; from other text the invalid bytes are
/// removed. kReplace: U+FFFD replaces invalid bytes and lone surrogates; a JSON line that still cannot be parsed is
/// skipped.
enum class BadLines : uint8_t { kStop, kSkip, kReplace };
constexpr auto names_of(BadLines) { return enum_names<BadLines>("stop", "skip", "replace"); }
using ashlar::name_of;

}  // namespace ashlar::data
