#pragma once

#include <cstdint>

#include "kernels/cuda/attention/mask.h"
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/dev/vector.h"

/// What the kernels of attention are told, by value: the contract (core/backend/attention.h) as plain numbers and
/// device addresses.
namespace ashlar::ASHLAR_DEV::attention {

/// Rows of one operand. Row t of head h of sample b begins at data + b * batch + t * row + h * D.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int align = 0;  ///< bytes, a power of 2 to 16: every row of every head begins at a multiple of it

  __device__ T* head(int64_t b, int64_t h, int64_t D) const { return data + b * batch + h * D; }
};

/// DropoutArgs for kernels. `scalars` is device memory.
struct Dropout {
  uint32_t threshold = 0;  ///< kept iff the upper 24 bits of the word are at least this
  uint32_t site = 0;
  uint64_t seed = 0;
  double keep_scale = 1;  ///< 1 / (1 - p)
  const StepScalars* scalars = nullptr;
  int64_t first_sample = 0, heads = 0, head0 = 0, sequence_length = 0;
};

/// One call.
struct Problem {
  int B = 0, T_q = 0, T_kv = 0;
  int H = 0, G = 0, D = 0, D_v = 0;
  KeyMask mask;
  Dropout dropout;

  /// Query heads of one KV head.
  __device__ __host__ int group() const { return H / G; }
};

/// S is the storage type.
template <typename S>
struct ForwardArrays {
  HeadRows<const S> q, k, v;
  HeadRows<S> out;
  AccumulateOf<S>* lse;  ///< [B, H, T_q]
  Scores<S> scores;
};

/// Absent gradients have no data.
template <typename S>
struct BackwardArrays {
  HeadRows<const S> dout, q, k, v;
  const AccumulateOf<S>* lse;    ///< [B, H, T_q]
  const AccumulateOf<S>* delta;  ///< [B, H, T_q]
  HeadRows<S> dq, dk, dv;
  const int4* tile_keys;  ///< where first keys are listed, for the pass over keys: see kernels.h
  int accumulate;         ///< 1: added to what the gradients hold
  Scores<S> scores;
};

}  // namespace ashlar::ASHLAR_DEV::attention
