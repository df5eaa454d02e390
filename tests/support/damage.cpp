#include "tests/support/damage.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace ashlar::testing {

void flip_bit(const std::filesystem::path& path, int64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(bit / 8);
  const int byte = file.get();
  ASSERT_NE(byte, EOF) << path << " bit " << bit;
  file.seekp(bit / 8);
  file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
  ASSERT_TRUE(file.good()) << path;
}

void flip_middle_bit(const std::filesystem::path& path, int bit) {
  flip_bit(path, 8 * static_cast<int64_t>(std::filesystem::file_size(path) / 2) + bit);
}

}  // namespace ashlar::testing
