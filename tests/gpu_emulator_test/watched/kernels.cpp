#include "tests/gpu_emulator_test/watched/kernels.h"

#include "tests/gpu/conformance/ptx.h"

namespace ashlar::instrumented {

template <bool kRight>
void read_before_barrier(float* out) {
  ASHLAR_SHARED(float, values, [64]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);  // [raw: write]
  if (kRight) __syncthreads();
  out[threadIdx.x] = values[63 - threadIdx.x];  // [raw: read]
}

template <bool kRight>
void write_before_all_have_read(float* out) {
  ASHLAR_SHARED(float, values, [64]);
  for (int round = 0; round < 3; ++round) {
    values[threadIdx.x] = static_cast<float>(round);  // [war: write]
    __syncthreads();
    out[threadIdx.x] = values[63 - threadIdx.x];  // [war: read]
    if (kRight) __syncthreads();
  }
}

template <bool kRight>
void all_write_one_place(float* out) {
  ASHLAR_SHARED(float, last, [1]);
  if (!kRight || threadIdx.x == 0) last[0] = 1;  // [waw]
  __syncthreads();
  out[threadIdx.x] = last[0];
}

template <bool kRight>
void read_without_syncwarp(float* out) {
  ASHLAR_SHARED(float, values, [64]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);  // [warp: write]
  if (kRight) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];  // [warp: read]
}

template <bool kRight>
void syncwarp_of_half(float* out) {
  ASHLAR_SHARED(float, values, [64]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp(threadIdx.x % 32 < 16 ? 0xffffU : 0xffff0000U);
  out[threadIdx.x] = values[threadIdx.x ^ (kRight ? 15 : 16)];
}

// The usual sum of a block, twice, so that the second one must wait before it fills `sums` again.
template <bool kRight>
void reduce_by_shuffles(float* out) {
  ASHLAR_SHARED(float, sums, [32]);
  for (int round = 1; round <= 2; ++round) {
    float sum = static_cast<float>(threadIdx.x) * static_cast<float>(round);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
    if (kRight) __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += sums[warp];
    out[threadIdx.x] = total;
  }
}

template <bool kRight>
void ldmatrix_before_barrier(uint32_t* out) {
  ASHLAR_SHARED(uint4, rows, [64]);
  rows[threadIdx.x] = make_uint4(threadIdx.x, 1, 2, 3);  // [ldmatrix: write]
  if (kRight) __syncthreads();
  uint32_t r[4];
  ldmatrix_x4(r, shared_address(&rows[threadIdx.x ^ 32]));  // [ldmatrix: read]
  for (const uint32_t x : r) out[threadIdx.x] = x;
}

template <bool kRight>
void read_before_copy_is_waited_for(const float* from, float* out) {
  ASHLAR_SHARED(float, staged, [64]);
  cp_async<4>(shared_address(&staged[threadIdx.x]), from + threadIdx.x, 4);  // [copy]
  cp_async_commit_group();
  if (kRight) cp_async_wait_group<0>();
  __syncthreads();
  out[threadIdx.x] = staged[63 - threadIdx.x];  // [copy: read]
  if (!kRight) cp_async_wait_group<0>();
}

template <bool kRight>
void read_copy_of_others_without_barrier(const float* from, float* out) {
  ASHLAR_SHARED(float, staged, [64]);
  cp_async<4>(shared_address(&staged[threadIdx.x]), from + threadIdx.x, 4);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  if (kRight) __syncthreads();
  out[threadIdx.x] = staged[63 - threadIdx.x];
}

// Two stages: the next tile is fetched while this one is used.
template <bool kRight>
void refill_too_early(const float* from, float* out) {
  ASHLAR_SHARED(float, staged, [2][64]);
  const auto fetch = [&](int tile) {
    cp_async<4>(shared_address(&staged[tile % 2][threadIdx.x]), from + threadIdx.x, 4);
    cp_async_commit_group();
  };
  float sum = 0;
  fetch(0);
  for (int tile = 0; tile < 6; ++tile) {
    if (tile + 1 < 6) {
      fetch(tile + 1);
      cp_async_wait_group<1>();
    } else {
      cp_async_wait_group<0>();
    }
    __syncthreads();
    sum += staged[tile % 2][63 - threadIdx.x];
    if (kRight) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

template <bool kRight>
void take_without_bar_sync(float* out) {
  ASHLAR_SHARED(float, values, [32]);
  const unsigned lane = threadIdx.x % 32;
  for (int round = 0; round < 4; ++round) {
    if (threadIdx.x < 32) {
      bar_sync(1, 64);
      values[lane] = static_cast<float>(round);
      bar_arrive(2, 64);
    } else {
      bar_arrive(1, 64);
      if (kRight) bar_sync(2, 64);
      out[lane] = values[31 - lane];
      if (!kRight) bar_sync(2, 64);
    }
  }
}

template <bool kRight>
void take_without_mbarrier(float* out) {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  ASHLAR_SHARED(float, values, [32]);
  const uint32_t full = shared_address(barrier);
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x == 0) mbarrier_init(full, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    values[lane] = 1;
    mbarrier_arrive(full);
  } else {
    if (kRight) mbarrier_wait_parity(full, 0);
    out[lane] = values[31 - lane];
  }
}

template <bool kRight>
void make_without_empty_mbarrier(float* out) {
  ASHLAR_SHARED(uint64_t, barriers, [2]);
  ASHLAR_SHARED(float, values, [32]);
  const uint32_t full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]);
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 32);
    mbarrier_init(empty, 1);
  }
  __syncthreads();
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0 && kRight) mbarrier_wait_parity(empty, (round - 1) % 2);
      values[lane] = static_cast<float>(round);
      mbarrier_arrive(full);
      if (!kRight) mbarrier_wait_parity(empty, round % 2);
    } else {
      mbarrier_wait_parity(full, round % 2);
      out[lane] = values[31 - lane];
      if (kRight) __syncwarp();  // lane 0 speaks for all
      if (lane == 0) mbarrier_arrive(empty);
    }
  }
}

template <bool kRight>
void blocks_write_one_place(float* out) {
  if (threadIdx.x == 0) out[kRight ? blockIdx.x : 0] = static_cast<float>(blockIdx.x);  // [blocks: write]
}

template <bool kRight>
void read_from_other_block(float* values, float* out) {
  values[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  const unsigned block = kRight ? blockIdx.x : (blockIdx.x + 1) % gridDim.x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[block * blockDim.x + threadIdx.x];
}

// The last block to finish adds up what all have left in `partial` [blocks].
template <Fencing kFencing>
void sum_by_last_block(const float* in, float* partial, unsigned* ticket, float* out) {
  ASHLAR_SHARED(bool, is_last, [1]);
  constexpr int kPerBlock = kFencing == Fencing::kByAll ? 64 : 1;
  if (kFencing == Fencing::kByAll) {
    partial[blockIdx.x * 64 + threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    __threadfence();
    __syncthreads();
  } else if (kFencing == Fencing::kInWarp) {
    if (threadIdx.x == 5) partial[blockIdx.x] = in[blockIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) __threadfence();
  } else if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x];  // [last block: write]
    if (kFencing == Fencing::kByFirstThread) __threadfence();
    if (kFencing == Fencing::kOfBlockOnly) __threadfence_block();
  }
  if (threadIdx.x == 0) is_last[0] = atomicAdd(ticket, 1U) == gridDim.x - 1;
  __syncthreads();
  if (!is_last[0]) return;
  for (unsigned i = threadIdx.x; i < gridDim.x * kPerBlock; i += blockDim.x) out[i] = partial[i];  // [last block: read]
  if (threadIdx.x == 0) *ticket = 0;
}

template <bool kRight>
void histogram(const int* in, unsigned* counts, unsigned* out) {
  atomicAdd(&counts[in[blockIdx.x * 64 + threadIdx.x]], 1U);
  if (!kRight) out[blockIdx.x * 64 + threadIdx.x] = counts[0];
}

template <typename T>
void read_at(const T* at, int64_t offset, T* out) {
  out[threadIdx.x] = at[offset + threadIdx.x];  // [at: read]
}
template <typename T>
void write_at(T* at, int64_t offset) {
  at[offset + threadIdx.x] = T{};  // [at: write]
}

void shared_at(int offset) {
  ASHLAR_SHARED(float, values, [64]);
  values[static_cast<int>(threadIdx.x) + offset] = 0;  // [shared: write]
}
void dynamic_at(int offset) {
  ASHLAR_DYNAMIC_SHARED(float, values);
  values[static_cast<int>(threadIdx.x) + offset] = 0;  // [dynamic: write]
}

namespace {
const float kTable[4] = {1, 2, 3, 4};
}  // namespace

void read_constants(float* out) { out[threadIdx.x] = kTable[threadIdx.x % 4]; }
void write_constant() { const_cast<float*>(kTable)[threadIdx.x % 4] = 0; }

void read_stack_of_others(float* out) {
  ASHLAR_SHARED(const float*, pointers, [64]);
  float own[2] = {static_cast<float>(threadIdx.x), 0};
  pointers[threadIdx.x] = own;
  __syncthreads();
  out[threadIdx.x] = *pointers[63 - threadIdx.x];
  __syncthreads();
}

void misaligned_vector(const float* from, int offset, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(from + 4 * threadIdx.x + offset);
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
void misaligned_shared_vector(int offset, float* out) {
  ASHLAR_SHARED(float4, values, [65]);
  float* const words = reinterpret_cast<float*>(values) + 4 * threadIdx.x + offset;
  *reinterpret_cast<float2*>(words) = make_float2(1, 2);
  out[threadIdx.x] = words[0];
}

void local_array(const float* in, float* out) {
  float mine[8];
  for (int i = 0; i < 8; ++i) mine[i] = in[(threadIdx.x + static_cast<unsigned>(i)) % 64];
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += mine[(threadIdx.x + static_cast<unsigned>(i)) % 8];
  out[threadIdx.x] = sum;
}

template <typename T>
void copy_strided(const T* from, T* to, int64_t stride, int64_t offset) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i * stride + offset];
}

template <typename T>
void shared_strided(int stride, float* out) {
  ASHLAR_DYNAMIC_SHARED(T, values);
  const T value = values[static_cast<int>(threadIdx.x) * stride];
  out[threadIdx.x] = *reinterpret_cast<const float*>(&value);
}

void matrices_of_stride(int stride, uint32_t* out) {
  ASHLAR_DYNAMIC_SHARED(uint16_t, rows);
  uint32_t r[4];
  ldmatrix_x4(r, shared_address(rows + static_cast<int>(threadIdx.x) * stride));
  for (const uint32_t x : r) out[threadIdx.x] = x;
}

void copy_async_strided(const float* from, int64_t stride, float* out) {
  ASHLAR_SHARED(float4, staged, [32]);
  cp_async<16>(shared_address(&staged[threadIdx.x]), from + static_cast<int64_t>(threadIdx.x) * stride, 16);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  out[threadIdx.x] = staged[threadIdx.x].x;
}

void copy_async_part(const float* from, uint32_t lanes, float* out) {
  ASHLAR_SHARED(float4, staged, [2][32]);
  for (int i = 0; i < 2; ++i) {
    const bool mine = (lanes >> threadIdx.x & 1U) != 0;
    cp_async<16>(shared_address(&staged[i][threadIdx.x]), from + threadIdx.x * 4, mine || i == 1 ? 16 : 0);
  }
  cp_async_commit_group();
  cp_async_wait_group<0>();
  out[threadIdx.x] = static_cast<float>(lanes);
}

#define ASHLAR_BOTH(kernel, ...)           \
  template void kernel<true>(__VA_ARGS__); \
  template void kernel<false>(__VA_ARGS__);
ASHLAR_BOTH(read_before_barrier, float*)
ASHLAR_BOTH(write_before_all_have_read, float*)
ASHLAR_BOTH(all_write_one_place, float*)
ASHLAR_BOTH(read_without_syncwarp, float*)
ASHLAR_BOTH(syncwarp_of_half, float*)
ASHLAR_BOTH(reduce_by_shuffles, float*)
ASHLAR_BOTH(ldmatrix_before_barrier, uint32_t*)
ASHLAR_BOTH(read_before_copy_is_waited_for, const float*, float*)
ASHLAR_BOTH(read_copy_of_others_without_barrier, const float*, float*)
ASHLAR_BOTH(refill_too_early, const float*, float*)
ASHLAR_BOTH(take_without_bar_sync, float*)
ASHLAR_BOTH(take_without_mbarrier, float*)
ASHLAR_BOTH(make_without_empty_mbarrier, float*)
ASHLAR_BOTH(blocks_write_one_place, float*)
ASHLAR_BOTH(read_from_other_block, float*, float*)
ASHLAR_BOTH(histogram, const int*, unsigned*, unsigned*)
#undef ASHLAR_BOTH
template void sum_by_last_block<Fencing::kNone>(const float*, float*, unsigned*, float*);
template void sum_by_last_block<Fencing::kOfBlockOnly>(const float*, float*, unsigned*, float*);
template void sum_by_last_block<Fencing::kByFirstThread>(const float*, float*, unsigned*, float*);
template void sum_by_last_block<Fencing::kByAll>(const float*, float*, unsigned*, float*);
template void sum_by_last_block<Fencing::kInWarp>(const float*, float*, unsigned*, float*);
template void read_at(const float*, int64_t, float*);
template void read_at(const uint16_t*, int64_t, uint16_t*);
template void write_at(float*, int64_t);
template void write_at(uint8_t*, int64_t);
template void copy_strided(const float*, float*, int64_t, int64_t);
template void copy_strided(const float4*, float4*, int64_t, int64_t);
template void copy_strided(const uint16_t*, uint16_t*, int64_t, int64_t);
template void shared_strided<float>(int, float*);
template void shared_strided<float2>(int, float*);
template void shared_strided<float4>(int, float*);

}  // namespace ashlar::instrumented
