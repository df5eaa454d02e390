#pragma once

#include "kernels/cuda/dev/kernel.h"

/// Sums and maxima over the threads of a warp, and over the threads that share a row. The order of additions depends
/// only on the number of threads, so that results have the same bits in every run.
namespace ashlar::ASHLAR_DEV {

struct Add {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return a + b;
  }
};
/// The maximum of two numbers. If exactly one of them is NaN, the result is the other number.
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
};

/// Reduces `value` over each group of `lanes` adjacent lanes; `lanes` is a power of two up to 32. All lanes of a group
/// get the same bits. The whole warp must call it.
template <typename Op, typename A>
__device__ __forceinline__ A warp_reduce(A value, Op op, int lanes = 32) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// Returns the sum of `value` over this lane and all lower lanes. The whole warp must call it.
__device__ __forceinline__ int warp_prefix_sum(int value) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(0xffffffffU, value, static_cast<unsigned>(offset));
    if (lane >= offset) value += lower;
  }
  return value;
}

/// The group of threads that processes one row together. A block is divided into `count` groups of `lanes` threads,
/// where `lanes` is a power of two up to 32 or a multiple of 32. `index` is the index of this thread's group in the
/// block, `rank` is the index of this thread in its group.
template <typename A>
class RowGroup {
 public:
  static constexpr int kValues = 2;             ///< maximum number of values of one call of reduce
  static constexpr int kShared = kValues * 64;  ///< size of `shared`: kValues for each of 32 warps, in two buffers

  __device__ RowGroup(int lanes_in, A* shared)
      : lanes(lanes_in),
        index(static_cast<int>(threadIdx.x) / lanes_in),
        rank(static_cast<int>(threadIdx.x) % lanes_in),
        count(static_cast<int>(blockDim.x) / lanes_in),
        shared_(shared) {}

  /// Reduces each of K values over the group. Every thread of the group gets the results. All threads of the block must
  /// call it.
  template <typename Op, int K>
  __device__ __forceinline__ void reduce(A (&values)[K], Op op) {
    static_assert(K <= kValues);
    ASHLAR_UNROLL
    for (int k = 0; k < K; ++k) values[k] = warp_reduce(values[k], op, min(lanes, 32));
    if (lanes <= 32) return;
    // Two buffers alternate: before a buffer is rewritten, all threads have passed a barrier after reading it.
    A* const buffer = shared_ + (use_second_ ? kValues * 32 : 0);
    use_second_ = !use_second_;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
      ASHLAR_UNROLL
      for (int k = 0; k < K; ++k) buffer[k * 32 + warp] = values[k];
    }
    __syncthreads();
    const int first = index * (lanes / 32);
    ASHLAR_UNROLL
    for (int k = 0; k < K; ++k) {
      A result = buffer[k * 32 + first];
      for (int w = 1; w < lanes / 32; ++w) result = op(result, buffer[k * 32 + first + w]);
      values[k] = result;
    }
  }
  template <typename Op>
  __device__ __forceinline__ A reduce(A value, Op op) {
    A values[1] = {value};
    reduce(values, op);
    return values[0];
  }

  const int lanes, index, rank, count;

 private:
  A* const shared_;
  bool use_second_ = false;
};

/// Sums each of K values over the groups of a block. `index`, `rank` and `count` mean the same as in RowGroup: `rank`
/// is the index of a thread in its group. Thread `rank` of group 0 gets the sum of the values of thread `rank` of all
/// groups, added as a binary tree; the values of other groups are undefined afterwards. `shared` has room for K values
/// for each of half the block's threads. All threads of the block must call it.
template <typename A, int K>
__device__ __forceinline__ void add_groups(A (&values)[K], int lanes, int index, int rank, int count, A* shared) {
  int half = 1;
  while (2 * half < count) half *= 2;
  for (; half > 0 && count > 1; half /= 2) {
    const int writers = (min(count, 2 * half) - half) * lanes;
    if (index >= half && index < 2 * half) {
      ASHLAR_UNROLL
      for (int k = 0; k < K; ++k) shared[k * writers + (index - half) * lanes + rank] = values[k];
    }
    __syncthreads();
    if (index + half < min(count, 2 * half)) {
      ASHLAR_UNROLL
      for (int k = 0; k < K; ++k) values[k] += shared[k * writers + index * lanes + rank];
    }
    __syncthreads();
  }
}

}  // namespace ashlar::ASHLAR_DEV
