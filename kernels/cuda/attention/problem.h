#pragma once

#include <cstdint>

#include "core/backend/attention.h"
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
  static constexpr int kEveryKey = 0x7fffffff;  ///< longer than every sequence

  int B = 0, T_q = 0, T_kv = 0;
  int H = 0, G = 0, D = 0, D_v = 0;
  int64_t q_start = 0, kv_start = 0;  ///< positions are less than 2^31
  int diagonal = 0;                   ///< q_start - kv_start: the last key that query 0 may see by its position
  double scale = 1, softcap = 0;
  bool limited = false;                ///< a query's position hides early keys, by:
  int window = kEveryKey;              ///< keys i - window + 1 to i
  int chunk = kEveryKey;               ///< keys of the query's own chunk
  const int32_t* doc_start = nullptr;  ///< [B * T_q] or null
  const int* first_keys = nullptr;     ///< [B * T_q], see kernels.h; null where only the causal mask hides keys
  Dropout dropout;

  /// Query heads of one KV head.
  __device__ __host__ int group() const { return H / G; }
};

/// What a model has for each query head; null where it has not.
template <typename S>
struct HeadNumbers {
  const AccumulateOf<S>* slopes;  ///< [H] of ALiBi
  const S* sinks;                 ///< [H]
  const AccumulateOf<S>* biases;  ///< [H, distances] of T5, by distance; larger ones have the last
  int distances;

  /// Scores are more than scale * q.k.
  bool change_scores(const Problem& p) const { return slopes != nullptr || biases != nullptr || p.softcap != 0; }
};

/// T5's table of biases, and its gradient.
template <typename S>
struct BiasTable {
  const S* bias;           ///< [buckets, H], rows `row` apart
  const int32_t* buckets;  ///< [distances]
  int64_t row;
  int num_buckets, distances;
};

/// S is the storage type.
template <typename S>
struct ForwardArrays {
  HeadRows<const S> q, k, v;
  HeadRows<S> out;
  AccumulateOf<S>* lse;  ///< [B, H, T_q]
  HeadNumbers<S> heads;
};

/// Absent gradients have no data.
template <typename S>
struct BackwardArrays {
  HeadRows<const S> dout, q, k, v;
  const AccumulateOf<S>* lse;    ///< [B, H, T_q]
  const AccumulateOf<S>* delta;  ///< [B, H, T_q]
  HeadRows<S> dq, dk, dv;
  const int2* tile_keys;  ///< where there are first_keys, for the pass over keys: see kernels.h
  int accumulate;         ///< 1: added to what the gradients hold
  HeadNumbers<S> heads;
};

}  // namespace ashlar::ASHLAR_DEV::attention
