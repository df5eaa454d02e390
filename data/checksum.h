#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// CRC-32 (IEEE 802.3) of bytes; `seed` continues an earlier call.
uint32_t crc32_of(std::string_view bytes, uint32_t seed = 0);

struct FileSum {
  int64_t bytes = 0;
  uint32_t crc32 = 0;
};

/// Size and CRC-32 of a file, read in pieces of 1 MiB. A file that cannot be read is an error that names it.
FileSum sum_file(const std::string& path);

std::string hex32(uint32_t value);  ///< 8 lower-case digits
std::string hex64(uint64_t value);  ///< 16 lower-case digits

}  // namespace ashlar::data
