#pragma once

#include <cstdint>
#include <string>

#include "core/base/strings.h"

namespace ashlar {

/// Format checksums and hashes for files and errors: fixed width, lower case, leading zeros.
inline std::string hex32(uint32_t value) { return str_cat(absl::Hex(value, absl::kZeroPad8)); }
inline std::string hex64(uint64_t value) { return str_cat(absl::Hex(value, absl::kZeroPad16)); }

}  // namespace ashlar
