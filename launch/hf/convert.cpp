#include "launch/hf/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "parallel/checkpoint/convert.h"

namespace ashlar::hf {
namespace {

/// Element i of a byte span, which need not be aligned for T.
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
  constexpr int64_t kTile = 32;  // both sides of a tile stay in the first-level cache
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

uint16_t half_bits(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN: keep the upper payload, stay a NaN
    const uint32_t payload = (magnitude >> 13) & 0x3ffU;
    return static_cast<uint16_t>(sign | 0x7c00U | (payload != 0 ? payload : 0x200U));
  }
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + 15;
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00U);
  if (exponent < -10) return sign;  // below half of the least subnormal
  // The bits to keep stand above `shift`; subnormals lose one more for each step below the least normal exponent.
  const uint32_t mantissa = exponent > 0 ? (magnitude & 0x7fffffU) : ((magnitude & 0x7fffffU) | 0x800000U);
  const int shift = exponent > 0 ? 13 : 14 - exponent;
  uint32_t half = (exponent > 0 ? static_cast<uint32_t>(exponent) << 10 : 0U) + (mantissa >> shift);
  const uint32_t rest = mantissa & ((1U << shift) - 1U);
  const uint32_t middle = 1U << (shift - 1);
  if (rest > middle || (rest == middle && (half & 1U) != 0)) ++half;  // may carry into the exponent, up to infinity
  return static_cast<uint16_t>(sign | half);
}

int64_t convert_elements(io::FileDType from, std::span<const std::byte> in, io::FileDType to,
                         std::span<std::byte> out) {
  const int64_t count = static_cast<int64_t>(in.size()) / io::size_of(from);
  ASHLAR_CHECK(static_cast<int64_t>(in.size()) == count * io::size_of(from) &&
                   static_cast<int64_t>(out.size()) == count * io::size_of(to),
               in.size(), " bytes of ", io::name_of(from), " into ", out.size(), " of ", io::name_of(to));
  if (from == to) {
    std::memcpy(out.data(), in.data(), in.size());
    return -1;
  }
  if (to == io::FileDType::kF16) {
    std::vector<std::byte> wide;
    std::span<const std::byte> floats = in;
    if (from != io::FileDType::kF32) {
      wide.resize(static_cast<size_t>(count) * sizeof(float));
      checkpoint::convert(from, in, DType::kFloat32, wide);
      floats = wide;
    }
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t half = half_bits(load<float>(floats, i));
      std::memcpy(out.data() + i * 2, &half, sizeof(half));
    }
  } else {
    const auto target = io::to_dtype(to);
    ASHLAR_CHECK(target.has_value() && is_floating(*target), "no conversion to ", io::name_of(to));
    checkpoint::convert(from, in, *target, out);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (is_infinite(to, out, i) && !is_infinite(from, in, i)) return i;
  }
  return -1;
}

void transpose(std::span<const std::byte> src, int64_t rows, int64_t cols, int64_t element_bytes,
               std::span<std::byte> dst) {
  ASHLAR_CHECK(static_cast<int64_t>(src.size()) == rows * cols * element_bytes && dst.size() == src.size(),
               "transpose of ", rows, "x", cols, " elements of ", element_bytes, " bytes from ", src.size(), " to ",
               dst.size());
  switch (element_bytes) {
    case 1: return transpose_elements<uint8_t>(src.data(), rows, cols, dst.data());
    case 2: return transpose_elements<uint16_t>(src.data(), rows, cols, dst.data());
    case 4: return transpose_elements<uint32_t>(src.data(), rows, cols, dst.data());
    case 8: return transpose_elements<uint64_t>(src.data(), rows, cols, dst.data());
    default: throw Bug(str_cat("element of ", element_bytes, " bytes"));
  }
}

}  // namespace ashlar::hf
