#include "launch/hf/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/io/convert.h"

namespace ashlar::hf {
namespace {

/// Returns element i of a span of T values, which need not be aligned.
template <typename T>
T load(std::span<const std::byte> bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

bool is_infinite(io::FileDType dtype, std::span<const std::byte> bytes, int64_t i) {
  switch (dtype) {
    case io::FileDType::kF64: return std::isinf(load<double>(bytes, i));
    case io::FileDType::kF32: return std::isinf(load<float>(bytes, i));
    case io::FileDType::kF16: return (load<uint16_t>(bytes, i) & 0x7fff) == 0x7c00;
    case io::FileDType::kBF16: return (load<uint16_t>(bytes, i) & 0x7fff) == 0x7f80;
    default: throw Bug("not a floating type");
  }
}

template <typename T>
void transpose_elements(const std::byte* src, int64_t rows, int64_t cols, std::byte* dst) {
  constexpr int64_t kTile = 32;  // a tile of the source and one of the target fit in the L1 cache
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
        for (int64_t c = c0; c < std::min(c0 + kTile, cols); ++c) {
          std::memcpy(dst + static_cast<size_t>(c * rows + r) * sizeof(T),
                      src + static_cast<size_t>(r * cols + c) * sizeof(T), sizeof(T));
        }
      }
    }
  }
}

}  // namespace

int64_t convert_elements(io::FileDType from, std::span<const std::byte> in, io::FileDType to,
                         std::span<std::byte> out) {
  io::convert(from, in, to, out);
  if (from == to) return -1;
  const int64_t count = static_cast<int64_t>(in.size()) / io::size_of(from);
  for (int64_t i = 0; i < count; ++i) {
    if (is_infinite(to, out, i) && !is_infinite(from, in, i)) return i;
  }
  return -1;
}

void transpose(std::span<const std::byte> src, int64_t rows, int64_t cols, int64_t element_bytes,
               std::span<std::byte> dst) {
  ASHLAR_CHECK(static_cast<int64_t>(src.size()) == rows * cols * element_bytes && dst.size() == src.size(),
               "transpose of ", rows, "x", cols, " elements of ", element_bytes, " bytes: the source has ", src.size(),
               " bytes, the target ", dst.size());
  switch (element_bytes) {
    case 1: return transpose_elements<uint8_t>(src.data(), rows, cols, dst.data());
    case 2: return transpose_elements<uint16_t>(src.data(), rows, cols, dst.data());
    case 4: return transpose_elements<uint32_t>(src.data(), rows, cols, dst.data());
    case 8: return transpose_elements<uint64_t>(src.data(), rows, cols, dst.data());
    default: throw Bug(str_cat("expected elements of 1, 2, 4 or 8 bytes, got ", element_bytes));
  }
}

}  // namespace ashlar::hf
