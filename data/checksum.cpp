#include "data/checksum.h"

#include <zlib.h>

#include <vector>

#include "core/base/error.h"
#include "data/file.h"

namespace ashlar::data {

uint32_t crc32_of(std::string_view bytes, uint32_t seed) {
  return static_cast<uint32_t>(::crc32_z(seed, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

FileSum sum_file(const std::string& path) {
  const InputFile file(path);
  std::string buffer;
  FileSum sum;
  for (;;) {
    file.read_at(sum.bytes, int64_t{1} << 20, buffer);
    if (buffer.empty()) return sum;
    sum.crc32 = crc32_of(buffer, sum.crc32);
    sum.bytes += static_cast<int64_t>(buffer.size());
  }
}

std::string hex32(uint32_t value) { return str_cat(absl::Hex(value, absl::kZeroPad8)); }
std::string hex64(uint64_t value) { return str_cat(absl::Hex(value, absl::kZeroPad16)); }

}  // namespace ashlar::data
