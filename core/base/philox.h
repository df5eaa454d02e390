#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace ashlar {

/// Philox4x32-10, a counter-based random function. Every random number of a run depends only on the seed, the random
/// stream, the global index and (dropout only) the step, not on the mesh, the thread or the order of computation.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.
struct Philox {
  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  static constexpr Counter apply(Counter c, Key k) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53U} * c[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57U} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
      k[0] += 0x9E3779B9U;
      k[1] += 0xBB67AE85U;
    }
    return c;
  }

  /// Returns the four 32-bit words of block number `index` in the random stream (seed, rng_stream).
  static constexpr Counter block(uint64_t seed, uint64_t rng_stream, uint64_t index) {
    return apply({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(rng_stream),
                  static_cast<uint32_t>(rng_stream >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }

  /// Returns a uniform number in [0, 1): the upper 24 bits of a word times 2^-24, exact in fp32.
  static constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

  /// Returns two standard normal numbers from two words (Box-Muller). They are computed in double, so that fp32 and
  /// fp64 runs with one seed start from the same weights, except for one rounding.
  static std::array<double, 2> normal_pair(uint32_t a, uint32_t b) {
    const double u = (static_cast<double>(a) + 0.5) * 0x1p-32;
    const double v = (static_cast<double>(b) + 0.5) * 0x1p-32;
    const double r = std::sqrt(-2.0 * std::log(u));
    const double angle = 2.0 * std::numbers::pi * v;
    return {r * std::cos(angle), r * std::sin(angle)};
  }

  /// Returns the standard normal number of the element with this global index in the random stream (seed, rng_stream).
  static double normal_at(uint64_t seed, uint64_t rng_stream, uint64_t index) {
    const Counter w = block(seed, rng_stream, index / 4);
    const bool upper = (index & 2U) != 0;
    return normal_pair(w[upper ? 2 : 0], w[upper ? 3 : 1])[index & 1U];
  }

  /// Stream offset for repeated draws: if truncated_normal_at rejects a number, it draws again at the same index in the
  /// stream rng_stream + kNextDraw, then rng_stream + 2 kNextDraw, and so on. The multiples of any odd constant reach
  /// all 2^64 streams; this one is 2^64 / golden ratio.
  static constexpr uint64_t kNextDraw = 0x9E3779B97F4A7C15ULL;

  /// Returns a number from the truncated normal distribution: the standard normal number at `index`, drawn again until
  /// it lies within [-trunc_sigma, trunc_sigma].
  static double truncated_normal_at(uint64_t seed, uint64_t rng_stream, uint64_t index, double trunc_sigma) {
    double value = normal_at(seed, rng_stream, index);
    while (std::abs(value) > trunc_sigma) value = normal_at(seed, rng_stream += kNextDraw, index);
    return value;
  }
};

/// Stable 64-bit hash (FNV-1a with a final mix). The random stream of a parameter or of a dropout operation is the hash
/// of its name.
constexpr uint64_t hash64(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 33);
}

}  // namespace ashlar
