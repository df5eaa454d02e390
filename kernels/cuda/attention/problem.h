#pragma once

#include <cstdint>

#include "kernels/cuda/attention/mask.h"
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/dev/vector.h"

/// Arguments of the attention kernels: the arguments of core/backend/attention.h as plain numbers and device addresses,
/// which are passed to kernels by value.
namespace ashlar::ASHLAR_DEV::attention {

/// Rows of one operand. Row t of head h of sample b begins at data + b * batch + t * row + h * D.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int align = 0;  ///< alignment of every row of every head in bytes: a power of 2, at most 16

  __device__ T* head(int64_t b, int64_t h, int64_t D) const { return data + b * batch + h * D; }
};

/// DropoutArgs in the form of a kernel argument. `scalars` is in device memory; null if there is no dropout.
struct Dropout {
  uint32_t threshold = 0;  ///< a probability is kept iff the upper 24 bits of its random word are at least this
  uint32_t rng_stream = 0;
  uint64_t seed = 0;
  double keep_scale = 1;  ///< 1 / (1 - p)
  const StepScalars* scalars = nullptr;
  int64_t first_sample = 0, heads = 0, head0 = 0, sequence_length = 0;
};

/// Shape, mask and dropout of one call.
struct Problem {
  int B = 0, T_q = 0, T_kv = 0;
  int H = 0, G = 0, D = 0, D_v = 0;
  KeyMask mask;
  Dropout dropout;

  /// Number of query heads per KV head.
  __device__ __host__ int group() const { return H / G; }
};

/// Arrays of a forward pass. S is the storage type.
template <typename S>
struct ForwardArrays {
  HeadRows<const S> q, k, v;
  HeadRows<S> out;
  AccumulateOf<S>* lse;  ///< [B, H, T_q]
  Scores<S> scores;
};

/// Arrays of a backward pass. S is the storage type. Gradients that are not wanted have null data.
template <typename S>
struct BackwardArrays {
  HeadRows<const S> dout, q, k, v;
  const AccumulateOf<S>* lse;    ///< [B, H, T_q]
  const AccumulateOf<S>* delta;  ///< [B, H, T_q], the sum over d of out * dout
  HeadRows<S> dq, dk, dv;
  const int4* tile_keys;  ///< from key_ranges, for the pass over keys; null if mask.first_keys is null
  int accumulate;         ///< 1: adds to the existing gradients
  Scores<S> scores;
};

}  // namespace ashlar::ASHLAR_DEV::attention
