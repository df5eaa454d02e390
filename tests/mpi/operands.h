#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "core/tensor/view.h"
#include "parallel/comm/nccl_comm.h"

namespace ashlar::testing {

/// Element `index` of the operand of `rank`: a function of both alone, so that each rank knows everybody's operand.
/// Magnitudes span 2^-12 to 2^12: sums in another order have other bits.
template <typename T>
T operand_at(int rank, int64_t index, uint64_t seed = 1) {
  const Philox::Counter words = Philox::block(seed, static_cast<uint64_t>(rank) + 1, static_cast<uint64_t>(index));
  const double scale = std::bit_cast<double>(static_cast<uint64_t>(1011 + words[2] % 25) << 52);  // 2^-12 to 2^12
  const double wide = scale * (2.0 * Philox::uniform(words[0]) - 1.0 + Philox::uniform(words[1]) * 0x1p-24);
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
    return static_cast<T>(words[0] % 2000001U) - 1000000;
  } else if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<T>(words[0]);
  } else if constexpr (std::is_same_v<T, double>) {
    return wide;
  } else {
    return T(static_cast<float>(wide));
  }
}

/// The reference: operands of ranks [0, ranks) in rank order, in fp32 (fp64 for fp64), rounded once.
template <typename T>
T sum_at(int ranks, int64_t index, uint64_t seed = 1) {
  using A = std::conditional_t<std::is_same_v<T, BF16>, float, T>;
  A sum = static_cast<A>(operand_at<T>(0, index, seed));
  for (int rank = 1; rank < ranks; ++rank) sum += static_cast<A>(operand_at<T>(rank, index, seed));
  return static_cast<T>(sum);
}
template <typename T>
T max_at(int ranks, int64_t index, uint64_t seed = 1) {
  using A = std::conditional_t<std::is_same_v<T, BF16>, float, T>;
  A most = static_cast<A>(operand_at<T>(0, index, seed));
  for (int rank = 1; rank < ranks; ++rank) most = std::max(most, static_cast<A>(operand_at<T>(rank, index, seed)));
  return static_cast<T>(most);
}

/// How many of `size` elements at `got` are not the sum of operands [0, ranks) at [begin, begin + size), by what a
/// communicator promises of its sums: all bits, or (p - 1) eps sum |x| from the sum in fp64 (integers wrap).
template <typename T>
int64_t wrong_sums(const T* got, int64_t size, comm::Sums sums, int ranks, uint64_t seed = 1, int64_t begin = 0) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (sums == comm::Sums::kRankOrder) {
      const T want = sum_at<T>(ranks, begin + i, seed);
      wrong += std::memcmp(&want, got + i, sizeof(T)) != 0;
    } else if constexpr (std::is_same_v<T, int32_t>) {
      uint32_t want = 0;
      for (int rank = 0; rank < ranks; ++rank) want += static_cast<uint32_t>(operand_at<T>(rank, begin + i, seed));
      wrong += static_cast<T>(want) != got[i];
    } else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, long double, double>;
      constexpr double eps = std::is_same_v<T, double> ? 0x1p-53 : std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
      const auto wide_of = [](T value) {
        if constexpr (std::is_same_v<T, BF16>) {
          return static_cast<Wide>(static_cast<float>(value));
        } else {
          return static_cast<Wide>(value);
        }
      };
      Wide want = 0, magnitude = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto x = wide_of(operand_at<T>(rank, begin + i, seed));
        want += x;
        magnitude += std::abs(x);
      }
      // Roundings of roundings: the bound of first order, a hundredth wider.
      wrong += !(std::abs(wide_of(got[i]) - want) <= 1.01 * (ranks - 1) * eps * magnitude);
    }
  }
  return wrong;
}

/// An array between two guards that nobody may write to.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t size) : size_(size), memory_(static_cast<size_t>(size + 2 * kGuard)) {
    std::memset(static_cast<void*>(memory_.data()), kFill, memory_.size() * sizeof(T));
  }
  /// Elements [0, size) of the operand of `rank`.
  Buffer(int64_t size, int rank, uint64_t seed = 1) : Buffer(size) {
    for (int64_t i = 0; i < size; ++i) (*this)[i] = operand_at<T>(rank, i, seed);
  }

  T* data() { return memory_.data() + kGuard; }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return size_; }
  MutView view() { return view(0, size_); }
  MutView view(int64_t begin, int64_t end) { return {data() + begin, DTypeOf<T>::value, 1, end - begin, end - begin}; }

  /// How many elements of [begin, end) differ in any bit from want(i).
  template <typename Want>
  int64_t differing(int64_t begin, int64_t end, const Want& want) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) {
      const T value = want(i);
      count += std::memcmp(&value, data() + i, sizeof(T)) != 0;
    }
    return count;
  }
  template <typename Want>
  int64_t differing(const Want& want) {
    return differing(0, size_, want);
  }
  /// How many elements of the whole are not the sum of all operands.
  int64_t wrong_sums(comm::Sums sums, int ranks, uint64_t seed = 1) {
    return ashlar::testing::wrong_sums<T>(data(), size_, sums, ranks, seed);
  }
  /// Whether [begin, end) and the guards are as they were made.
  bool untouched(int64_t begin, int64_t end) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(data() + begin);
    return std::all_of(bytes, bytes + (end - begin) * static_cast<int64_t>(sizeof(T)),
                       [](unsigned char byte) { return byte == kFill; });
  }
  bool guards_hold() { return untouched(-kGuard, 0) && untouched(size_, size_ + kGuard); }

 private:
  static constexpr int64_t kGuard = 16;
  static constexpr unsigned char kFill = 0xa5;
  int64_t size_;
  std::vector<T> memory_;
};

}  // namespace ashlar::testing
