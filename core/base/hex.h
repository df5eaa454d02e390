#pragma once

#include <cstdint>
#include <string>

#include "core/base/strings.h"

namespace ashlar {

/// Return a checksum or hash as text for files and error messages: hexadecimal, fixed width, lower case, leading zeros.
inline std::string hex32(uint32_t value) { return str_cat(absl::Hex(value, absl::kZeroPad8)); }
inline std::string hex64(uint64_t value) { return str_cat(absl::Hex(value, absl::kZeroPad16)); }

}  // namespace ashlar
