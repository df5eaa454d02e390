#pragma once

#include <cstdint>
#include <filesystem>

namespace ashlar::testing {

/// One bit of a file turned over in place, or back; a file without that bit fails the test.
void flip_bit(const std::filesystem::path& path, int64_t bit);
/// The same in the byte in the middle.
void flip_middle_bit(const std::filesystem::path& path, int bit = 0);

}  // namespace ashlar::testing
