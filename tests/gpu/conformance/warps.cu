// What threads do together: barriers, shuffles, votes, reductions, atomics, tensor cores.
#include "core/base/bf16.h"
#include "kernels/cuda/dev/reduce.h"
#include "tests/gpu/conformance/cases.h"
#include "tests/gpu/conformance/ptx.h"

namespace ashlar::ASHLAR_DEV::conformance {
namespace {

constexpr uint32_t kAll = 0xffffffffU;

__global__ void shuffles(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const uint32_t x = in[2 * i];
  const double wide = static_cast<double>(static_cast<int>(in[2 * i + 1]));
  uint32_t* const to = out + 12 * i;
  to[0] = __shfl_sync(kAll, x, static_cast<int>(in[2 * (i - i % 32)] % 32));
  to[1] = __shfl_sync(kAll, x, static_cast<int>(x % 64), 16);
  to[2] = __shfl_up_sync(kAll, x, 3);
  to[3] = __shfl_up_sync(kAll, x, 5, 8);
  to[4] = __shfl_down_sync(kAll, x, 7);
  to[5] = __shfl_down_sync(kAll, x, 2, 4);
  to[6] = __shfl_xor_sync(kAll, x, 16);
  to[7] = __shfl_xor_sync(kAll, x, 5, 8);
  put(to + 8, __shfl_xor_sync(kAll, wide, 9));
  to[10] = word(__shfl_down_sync(kAll, static_cast<float>(x), 1));
  // Half of a warp by itself.
  const uint32_t half = i % 32 < 16 ? 0xffffU : 0xffff0000U;
  to[11] = __shfl_xor_sync(half, x, 1);
}

__global__ void votes(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const int often = in[i] % 8 != 0, rarely = in[i] % 64 == 0;
  uint32_t* const to = out + 9 * i;
  to[0] = __ballot_sync(kAll, often);
  to[1] = static_cast<uint32_t>(__any_sync(kAll, rarely));
  to[2] = static_cast<uint32_t>(__all_sync(kAll, often));
  to[3] = static_cast<uint32_t>(__syncthreads_count(often));
  to[4] = static_cast<uint32_t>(__syncthreads_or(rarely) != 0);
  to[5] = static_cast<uint32_t>(__syncthreads_and(often) != 0);
  const uint32_t half = i % 32 < 16 ? 0xffffU : 0xffff0000U;
  to[6] = __ballot_sync(half, often);
  to[7] = static_cast<uint32_t>(__any_sync(half, rarely));
  to[8] = static_cast<uint32_t>(__all_sync(half, 1));
}

__global__ void reductions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const uint32_t x = in[i];
  const auto s = static_cast<int>(x);
  uint32_t* const to = out + 9 * i;
  to[0] = __reduce_add_sync(kAll, x);
  to[1] = __reduce_min_sync(kAll, x);
  to[2] = __reduce_max_sync(kAll, x);
  to[3] = static_cast<uint32_t>(__reduce_min_sync(kAll, s));
  to[4] = static_cast<uint32_t>(__reduce_max_sync(kAll, s));
  to[5] = __reduce_and_sync(kAll, x | 0xff);
  to[6] = __reduce_or_sync(kAll, x & 0x0f0f0f0fU);
  to[7] = __reduce_xor_sync(kAll, x);
  to[8] = static_cast<uint32_t>(__reduce_add_sync(kAll, s));
}

/// reduce.h: sums and maxima of groups of 4 lanes, of a warp, of a block; of groups over each other.
__global__ void row_groups(const uint32_t* in, uint32_t* out) {
  ASHLAR_SHARED(float, shared, [RowGroup<float>::kShared]);
  ASHLAR_SHARED(float, columns, [2 * kThreads]);
  const int i = thread_of_grid();
  const float x = __uint_as_float(in[i]);
  uint32_t* const to = out + 8 * i;
  int k = 0;
  for (const int lanes : {4, 32, 64, 128}) {
    RowGroup<float> group(lanes, shared);
    float sums[2] = {x, __fmul_rn(x, x)};
    group.reduce(sums, Add());
    to[k++] = word(lanes == 64 ? group.reduce(x, Max()) : sums[1]);
    __syncthreads();
  }
  float values[2] = {x, 0.5F * x};
  add_groups(values, 8, static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8, kThreads / 8, columns);
  to[4] = threadIdx.x < 8 ? word(values[0]) : 0;
  to[5] = threadIdx.x < 8 ? word(values[1]) : 0;
  to[6] = word(warp_reduce(x, Max()));
  to[7] = word(warp_reduce(x, Add(), 16));
}

/// Of integers, whose sums do not depend on who comes first; each thread's word is what all of its block left.
__global__ void atomics(const uint32_t* in, uint32_t* out) {
  ASHLAR_SHARED(uint32_t, results, [8]);
  const int i = thread_of_grid();
  if (threadIdx.x < 8) results[threadIdx.x] = threadIdx.x == 2 || threadIdx.x == 5 ? 0xffffffffU : 0;
  __syncthreads();
  const uint32_t x = in[i];
  atomicAdd(&results[0], x);
  atomicMax(&results[1], x);
  atomicMin(&results[2], x);
  atomicOr(&results[3], x & 0x11111111U);
  atomicAnd(&results[5], x | 0x77777777U);
  if (threadIdx.x == 77) atomicExch(&results[4], x);
  if (threadIdx.x == 78) atomicCAS(&results[6], 0U, x);
  if (threadIdx.x == 79) atomicCAS(&results[7], 1U, x);
  __syncthreads();
  uint32_t* const to = out + 9 * i;
  for (int k = 0; k < 8; ++k) to[k] = results[k];
  // And to global memory: a row of its own, which all of a warp add to in turn.
  uint32_t* const mine = out + 9 * (i - i % 32) + 8;
  if (i % 32 == 0) *mine = 0;
  __syncwarp();
  atomicAdd(mine, x);
  __syncwarp();
  if (i % 32 != 0) to[8] = 0;
}

/// Producers count as come and go on, consumers wait: bar.arrive and bar.sync.
__global__ void named_barriers(const uint32_t* in, uint32_t* out) {
  ASHLAR_SHARED(uint32_t, box, [kThreads / 2]);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  constexpr int kHalf = kThreads / 2;
  if (t < kHalf) {
    box[t] = in[i] * 3;
    bar_arrive(1, kThreads);
    bar_sync(2, kThreads);
    out[i] = box[kHalf - 1 - t];
  } else {
    bar_sync(1, kThreads);
    const uint32_t got = box[kThreads - 1 - t];
    bar_sync(3, kHalf);  // all of this half have read
    box[t - kHalf] = got + 1;
    bar_sync(2, kThreads);
    out[i] = got;
  }
}

/// mbarrier: phases of 32 arrivals, the parity of each, waited for by all.
__global__ void shared_barriers(const uint32_t* in, uint32_t* out) {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  ASHLAR_SHARED(uint32_t, box, [32]);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  const uint32_t address = shared_address(barrier);
  if (t == 0) mbarrier_init(address, 32);
  __syncthreads();
  uint32_t sum = 0;
  for (int phase = 0; phase < 3; ++phase) {
    if (t / 32 == phase) {  // one warp writes for all
      box[t % 32] = in[i] + static_cast<uint32_t>(phase);
      mbarrier_arrive(address);
    }
    mbarrier_wait_parity(address, phase % 2);
    sum = sum * 5 + box[(t + phase) % 32];
    __syncthreads();
  }
  out[i] = sum;
}

/// Whole numbers to 8, whose sums are exact in any order.
__global__ void products_of_whole_numbers(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const auto pair = [&](int k) {
    const auto half = [](uint32_t bits) {
      return __float_as_uint(static_cast<float>(static_cast<int>(bits % 17) - 8)) >> 16;
    };
    return half(in[6 * i + k] & 0xffff) | half(in[6 * i + k] >> 16) << 16;
  };
  const uint32_t a[4] = {pair(0), pair(1), pair(2), pair(3)}, b[2] = {pair(4), pair(5)};
  const float c[4] = {1, 2, 3, static_cast<float>(i)};
  float d[4];
  mma_m16n8k16(d, a, b, c);
  for (int k = 0; k < 4; ++k) out[4 * i + k] = word(d[k]);
}

/// A GPU's tensor cores sum in an order and with a rounding of their own.
__global__ void products(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const auto pair = [&](int k) { return (in[12 * i + k] >> 16) | (in[12 * i + 6 + k] & 0xffff0000U); };
  const uint32_t a[4] = {pair(0), pair(1), pair(2), pair(3)}, b[2] = {pair(4), pair(5)};
  const float c[4] = {1, -1, 0, 2};
  float d[4];
  mma_m16n8k16(d, a, b, c);
  for (int k = 0; k < 4; ++k) out[4 * i + k] = word(d[k]);
}

}  // namespace

std::span<const Case> warp_cases() {
  static const Case cases[] = {
      {.name = "shuffles", .kernel = shuffles, .inputs = Inputs::kBits, .words_in = 2, .words_out = 12},
      {.name = "votes", .kernel = votes, .inputs = Inputs::kBits, .words_in = 1, .words_out = 9},
      {.name = "reductions", .kernel = reductions, .inputs = Inputs::kBits, .words_in = 1, .words_out = 9},
      {.name = "row_groups", .kernel = row_groups, .inputs = Inputs::kUnit, .words_in = 1, .words_out = 8},
      {.name = "atomics", .kernel = atomics, .inputs = Inputs::kBits, .words_in = 1, .words_out = 9},
      {.name = "named_barriers", .kernel = named_barriers, .inputs = Inputs::kBits, .words_in = 1, .words_out = 1},
      {.name = "shared_barriers", .kernel = shared_barriers, .inputs = Inputs::kBits, .words_in = 1, .words_out = 1},
      {.name = "products_of_whole_numbers",
       .kernel = products_of_whole_numbers,
       .inputs = Inputs::kBits,
       .words_in = 6,
       .words_out = 4},
      // 16 products of numbers to 4 and the sum before: each step may lose 2^-22 of 16 * 16 + 2
      {.name = "products",
       .kernel = products,
       .inputs = Inputs::kUnit,
       .words_in = 12,
       .words_out = 4,
       .allowed = 17 * 0x1p-22,
       .size = 258},
  };
  return cases;
}

}  // namespace ashlar::ASHLAR_DEV::conformance
