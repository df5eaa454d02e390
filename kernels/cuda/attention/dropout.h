#pragma once

#include "core/base/philox.h"
#include "kernels/cuda/attention/problem.h"
#include "kernels/cuda/dev/fragments.h"

/// Dropout masks of attention probabilities, as bits. They are the masks that DropoutArgs defines.
namespace ashlar::ASHLAR_DEV::attention {

/// Dropout of one sample and one query head.
class HeadDropout {
 public:
  HeadDropout() = default;
  __device__ HeadDropout(const Problem& p, int64_t b, int64_t h)
      : threshold_(p.dropout.threshold),
        rng_stream_(p.dropout.rng_stream),
        step_(static_cast<uint32_t>(p.dropout.scalars->philox_step)),
        seed_(p.dropout.seed),
        row_(static_cast<uint64_t>(p.dropout.sequence_length)) {
    const Dropout& d = p.dropout;
    const int64_t head = (d.first_sample + b) * d.heads + d.head0 + h;
    first_ = static_cast<uint64_t>((head * d.sequence_length + p.mask.q_start) * d.sequence_length + p.mask.kv_start);
  }

  /// Returns kCount bits (a multiple of 4, at most 32): bit i is 1 if the probability of query t and key j + i is kept.
  /// A call of Philox decides four adjacent keys. If the dropout index of key j is no multiple of 4, one more
  /// call is needed.
  template <int kCount>
  __device__ uint32_t keep_bits(int t, int j) const {
    const uint64_t e = first_ + static_cast<uint64_t>(t) * row_ + static_cast<uint64_t>(j);
    const uint64_t block = e / 4;
    const int skipped = static_cast<int>(e % 4);
    uint32_t bits = block_bits(block) >> skipped;
    ASHLAR_UNROLL
    for (int i = 1; i < kCount / 4; ++i) bits |= block_bits(block + i) << (4 * i - skipped);
    if (skipped != 0) bits |= block_bits(block + kCount / 4) << (kCount - skipped);
    return bits;
  }

 private:
  __device__ uint32_t block_bits(uint64_t block) const {
    const Philox::Counter words =
        Philox::apply({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), rng_stream_, step_},
                      {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    uint32_t bits = 0;
    ASHLAR_UNROLL
    for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>((words[i] >> 8) >= threshold_) << i;
    return bits;
  }

  uint32_t threshold_ = 0, rng_stream_ = 0, step_ = 0;
  uint64_t seed_ = 0;
  uint64_t row_ = 0;    ///< number of dropout indices of one query
  uint64_t first_ = 0;  ///< dropout index of query 0 and key 0 of the call
};

/// Dropout bits for a tile of probabilities: 16 queries from t on and 8 * kColumns keys from j on. A lane (g, q) has
/// the bits of its elements of an mma fragment (fragments.h), which belong to queries t + g and t + g + 8. The four
/// lanes with equal g draw the bits of half a row each and exchange them.
template <int kColumns>
class KeptKeys {
 public:
  KeptKeys() = default;
  __device__ KeptKeys(const HeadDropout& dropout, int t, int j, const Lane& lane) {
    const uint32_t mine = dropout.keep_bits<kBits>(t + lane.g + lane.q / 2 * 8, j + lane.q % 2 * kBits);
    ASHLAR_UNROLL
    for (int source = 0; source < 4; ++source) {
      bits_[source / 2][source % 2] = __shfl_sync(0xffffffffU, mine, 4 * lane.g + source) >> (2 * lane.q);
    }
  }

  /// True if the probability of query t + g + 8 * half and key j + 8 * n + 2 * q + i is kept.
  __device__ bool contains(int half, int n, int i) const {
    return (bits_[half][8 * n / kBits] >> (8 * n % kBits + i) & 1U) != 0;
  }

 private:
  static constexpr int kBits = 4 * kColumns;
  uint32_t bits_[2][2] = {};  ///< [i][c]: bits of query t + g + 8 * i for half c of the keys, shifted right by 2 * q
};

/// Dropout bits for a transposed tile of probabilities: 16 * kRowTiles keys from j on and 8 * kColumns queries from t
/// on. Used in the pass over keys (dk, dv). A lane draws the bits of all keys for queries t + lane, t + lane + 32, ...
template <int kRowTiles, int kColumns>
class KeptQueries {
 public:
  KeptQueries() = default;
  __device__ KeptQueries(const HeadDropout& dropout, int t, int j, const Lane& lane) {
    ASHLAR_UNROLL
    for (int i = 0; i < kWords; ++i) {
      drawn_[i] = dropout.keep_bits<16 * kRowTiles>(t + 32 * i + lane.index, j);
    }
  }

  /// Returns the bits of query t + 8 * n + 2 * q + i; bit 0 is key j + g. The whole warp must call it.
  __device__ uint32_t column(int n, int i, const Lane& lane) const {
    return __shfl_sync(0xffffffffU, drawn_[n / 4], n % 4 * 8 + 2 * lane.q + i) >> lane.g;
  }

 private:
  static constexpr int kWords = (kColumns + 3) / 4;
  uint32_t drawn_[kWords] = {};
};

}  // namespace ashlar::ASHLAR_DEV::attention
