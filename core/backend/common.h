#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "core/base/philox.h"
#include "core/tensor/view.h"

namespace ashlar {

/// Selects whether a backward kernel skips, overwrites or adds to its output.
enum class GradMode : uint8_t {
  kSkip,        ///< not needed: the view is absent, nothing is written
  kOverwrite,   ///< first contribution: previous content is undefined and not read
  kAccumulate,  ///< later contribution: added to the content
};

// Every pointer of an args struct is a view of device memory. The call reads a ConstView, and writes (or reads and
// writes) a MutView. `views()` lists all of them, also those of nested structs.

/// Step values computed on the host. Stored in device memory (struct_of), so that launches are the same every step;
/// always double.
struct StepScalars {
  double lr = 0;
  double beta1_correction = 1;  ///< 1 - beta1^t, t counted from 1
  double beta2_correction = 1;  ///< 1 - beta2^t
  double inv_valid_tokens = 1;  ///< 1 / valid targets of the whole global batch
  uint64_t philox_step = 0;     ///< step counter of dropout
};

/// Step decisions made on the device, in device memory (struct_of).
struct ClipState {
  double norm = 0;        ///< gradient norm before clipping
  double clip_scale = 1;  ///< gradients are multiplied by this
  int64_t skip = 0;       ///< not 0: the optimizer leaves weights and state untouched, from now on
};

/// Writes a small struct, passed by value with the call, into device memory.
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

/// Dropout as a function of global indices only, so that masks are equal on any mesh. An element with global index e is
/// kept iff uniform(word) >= p, and is then multiplied by 1/(1-p). `word` is word e%4 of Philox with counter {lo(e/4),
/// hi(e/4), rng_stream, philox_step} and key = seed.
/// Hidden rows: e = (first_sample*T + row0 + n) * width + c, n the row, width the row's.
/// Attention:   e = (((first_sample+b)*heads + head0 + h) * S + q) * S + k, with S = sequence_length, absolute q, k,
/// and h one of this rank's heads.
struct DropoutArgs {
  double p = 0;  ///< 0: no dropout; the other fields are then ignored
  uint64_t seed = 0;
  uint32_t rng_stream = 0;
  ConstView scalars{};          ///< StepScalars
  int64_t first_sample = 0;     ///< global index of the micro-batch's first sample
  int64_t sequence_length = 0;  ///< T of the run
  int64_t row0 = 0;             ///< hidden rows: this rank's first row of the micro-batch (sequence parallel)
  int64_t head0 = 0;            ///< attention: global index of this rank's first query head
  int64_t heads = 0;            ///< attention: query heads of the whole model

  bool active() const { return p > 0; }
  /// Returns the current step. For kernels, which read it once per call.
  uint32_t step() const { return static_cast<uint32_t>(struct_of<StepScalars>(scalars).philox_step); }
  /// Returns the four random words for elements 4*block .. 4*block+3 in the given step. For kernels.
  Philox::Counter words(uint64_t block, uint32_t step) const {
    return Philox::apply({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), rng_stream, step},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }

  auto views() const { return std::tie(scalars); }
};

}  // namespace ashlar
