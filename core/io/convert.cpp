#include "core/io/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "core/base/fp16.h"

namespace ashlar::io {
namespace {

/// Calls f(T()) with the C++ type T of the elements.
template <typename F>
void with_type(FileDType dtype, const F& f) {
  switch (dtype) {
    case FileDType::kF64: return f(double());
    case FileDType::kF32: return f(float());
    case FileDType::kF16: return f(FP16());
    case FileDType::kBF16: return f(BF16());
    default: throw Bug(str_cat("[safetensors] no conversion from or to ", name_of(dtype)));
  }
}

template <typename From, typename To>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t n = in.size() / sizeof(From);
  ASHLAR_CHECK(in.size() == n * sizeof(From) && out.size() == n * sizeof(To), in.size(),
               " input bytes do not fit an output of ", out.size());
  if constexpr (std::is_same_v<From, To>) {
    if (n > 0) std::memcpy(out.data(), in.data(), in.size());
  } else {
    for (size_t i = 0; i < n; ++i) {
      From x;
      std::memcpy(&x, in.data() + i * sizeof(From), sizeof(From));
      const To y = static_cast<To>(static_cast<float>(x));
      std::memcpy(out.data() + i * sizeof(To), &y, sizeof(To));
    }
  }
}

/// Bit masks to find NaN and infinity among the elements of a 64-bit word, all at once. The exponent bits of a NaN or
/// infinity are all ones. Adding `lowest` (the lowest exponent bit) to an element masked with `bits` sets the element's
/// sign bit iff its exponent bits are all ones, and never carries into the next element.
struct Exponent {
  uint64_t bits = 0, lowest = 0, sign = 0;
};

Exponent exponent_of(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF64: return {0x7ff0000000000000U, 0x0010000000000000U, 0x8000000000000000U};
    case FileDType::kF32: return {0x7f8000007f800000U, 0x0080000000800000U, 0x8000000080000000U};
    case FileDType::kF16: return {0x7c007c007c007c00U, 0x0400040004000400U, 0x8000800080008000U};
    case FileDType::kBF16: return {0x7f807f807f807f80U, 0x0080008000800080U, 0x8000800080008000U};
    default: throw Bug(str_cat("[safetensors] elements of ", name_of(dtype), " have no exponent"));
  }
}

/// True if the `size` bytes (at most 8) contain a NaN or infinity.
bool has_non_finite(const Exponent& e, const std::byte* bytes, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return (((word & e.bits) + e.lowest) & e.sign) != 0;
}

/// Number of 64-bit words that are tested together. It is constant, so that the compiler vectorises the loop.
constexpr size_t kBlockWords = 512;
bool block_has_non_finite(const Exponent& e, const std::byte* bytes) {
  uint64_t any = 0;
  for (size_t i = 0; i < kBlockWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    any |= (word & e.bits) + e.lowest;
  }
  return (any & e.sign) != 0;
}

}  // namespace

int64_t first_non_finite(FileDType dtype, std::span<const std::byte> elements) {
  const Exponent e = exponent_of(dtype);
  const auto size = static_cast<size_t>(size_of(dtype));
  constexpr size_t kBlock = kBlockWords * sizeof(uint64_t);
  ASHLAR_CHECK(elements.size() % size == 0, elements.size(), " bytes are not a whole number of elements of ", size);
  for (size_t begin = 0; begin < elements.size(); begin += kBlock) {
    const size_t end = std::min(elements.size(), begin + kBlock);
    if (end - begin == kBlock && !block_has_non_finite(e, elements.data() + begin)) continue;
    for (size_t at = begin; at < end; at += size)
      if (has_non_finite(e, elements.data() + at, size)) return static_cast<int64_t>(at / size);
  }
  return -1;
}

const char* non_finite_word(FileDType dtype, std::span<const std::byte> element) {
  double value = 0;
  convert(dtype, element, FileDType::kF64, std::as_writable_bytes(std::span(&value, 1)));
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

bool is_convertible(FileDType dtype) {
  return dtype == FileDType::kF64 || dtype == FileDType::kF32 || dtype == FileDType::kF16 || dtype == FileDType::kBF16;
}

void convert(FileDType from, std::span<const std::byte> in, FileDType to, std::span<std::byte> out) {
  with_type(from, [&](auto f) { with_type(to, [&](auto t) { convert_all<decltype(f), decltype(t)>(in, out); }); });
}

}  // namespace ashlar::io
