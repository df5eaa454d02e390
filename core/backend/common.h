#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "core/base/philox.h"
#include "core/tensor/view.h"

namespace ashlar {

/// Selects whether a kernel skips, overwrites or adds to an output. In formulas, `(+)=` stands for `=` or `+=`, as the
/// mode selects.
enum class GradMode : uint8_t {
  kSkip,        ///< the output is not needed: its view is absent, and nothing is written
  kOverwrite,   ///< first contribution: the previous content is undefined and is not read
  kAccumulate,  ///< later contribution: added to the previous content
};

// Every pointer of an args struct is a view of device memory. The call reads a ConstView, and writes (or reads and
// writes) a MutView. `views()` lists all views of the struct, including the views of nested structs.

/// Values that the host computes for each training step. Kernels read them from device memory (struct_of), so that
/// kernel launches have the same arguments in every step. Real numbers are double, whatever the dtype of the model.
struct StepScalars {
  double lr = 0;
  double beta1_correction = 1;  ///< 1 - beta1^t, t counted from 1
  double beta2_correction = 1;  ///< 1 - beta2^t
  double inv_valid_tokens = 1;  ///< 1 / (number of valid targets in the global batch)
  double inv_tokens = 1;        ///< 1 / (number of tokens in the global batch)
  uint64_t philox_step = 0;     ///< step number in the Philox counters of dropout and of stochastic rounding
};

/// Result of gradient clipping. The device computes it for each step and stores it in device memory (struct_of).
struct ClipState {
  double norm = 0;        ///< gradient norm before clipping
  double clip_scale = 1;  ///< factor by which gradients are multiplied
  int64_t skip = 0;       ///< not 0: this step and all later steps change neither weights nor optimizer state
};

/// Copies a small struct into device memory. The bytes are part of the arguments, so the host need not keep them.
struct SetStruct {
  static constexpr int64_t kMaxBytes = 64;

  template <typename T>
  static SetStruct of(const T& value, const MutView& dst) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    SetStruct set{.dst = dst, .size = sizeof(T)};
    std::memcpy(set.bytes.data(), &value, sizeof(T));
    return set;
  }

  MutView dst;  ///< kUInt8 [size], written
  int64_t size = 0;
  std::array<std::byte, kMaxBytes> bytes{};

  auto views() const { return std::tie(dst); }
};

/// Dropout whose mask depends only on seed, step and global indices, so that masks are equal on any mesh. The element
/// with global index e is kept iff uniform(word) >= p, and is then multiplied by 1/(1-p). `word` is word e%4 of Philox
/// with key = seed and counter {lower 32 bits of e/4, upper 32 bits of e/4, rng_stream, philox_step}. With T =
/// sequence_length,
///   activations    e = (first_sample*T + row0 + n) * width + c, for row n and column c of [rows, width]
///   attention      e = (((first_sample + b)*heads + head0 + h) * T + q) * T + k, for the probability of sample b,
///                  head h of this rank, and the absolute positions q of the query and k of the key
struct DropoutArgs {
  double p = 0;  ///< drop probability; 0: no dropout, and the other fields are ignored
  uint64_t seed = 0;
  uint32_t rng_stream = 0;
  ConstView scalars{};          ///< StepScalars in device memory
  int64_t first_sample = 0;     ///< global index of the micro-batch's first sample
  int64_t sequence_length = 0;  ///< T, the training sequence length in tokens
  int64_t row0 = 0;             ///< activations: index of this rank's first row in the micro-batch; 0 without sequence
                                ///< parallelism
  int64_t head0 = 0;            ///< attention probabilities: global index of this rank's first query head
  int64_t heads = 0;            ///< attention probabilities: number of query heads of the whole model

  bool active() const { return p > 0; }
  /// Returns the current step, read from `scalars` in device memory. Only kernels may call it.
  uint32_t step() const { return static_cast<uint32_t>(struct_of<StepScalars>(scalars).philox_step); }
  /// Returns the four random words of the elements 4*block to 4*block + 3 in the given step.
  Philox::Counter words(uint64_t block, uint32_t step) const {
    return Philox::apply({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), rng_stream, step},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }

  auto views() const { return std::tie(scalars); }
};

}  // namespace ashlar
