// Memory: vectors of each width, shared memory, ldmatrix, asynchronous copies.
#include "kernels/cuda/dev/vector.h"
#include "tests/gpu/conformance/cases.h"
#include "tests/gpu/conformance/ptx.h"

namespace ashlar::ASHLAR_DEV::conformance {
namespace {

/// Vectors of 16, 8, 4 and 2 bytes of bf16, of fp32 and of fp64, to shared memory and back.
__global__ void vectors(const uint32_t* in, uint32_t* out) {
  ASHLAR_SHARED(float4, block, [2 * kThreads]);  // aligned as its type is
  auto* const shared = reinterpret_cast<float*>(block);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  const auto* const halves = reinterpret_cast<const BF16*>(in + 8 * i);
  const auto* const floats = reinterpret_cast<const float*>(in + 8 * i);
  const auto* const doubles = reinterpret_cast<const double*>(in + 8 * i);
  uint32_t* const to = out + 32 * i;
  store(reinterpret_cast<BF16*>(to), load<8>(halves));
  store(reinterpret_cast<BF16*>(to + 4), load<4>(halves + 4));
  store(reinterpret_cast<BF16*>(to + 6), load<2>(halves + 2));
  store(reinterpret_cast<BF16*>(to + 7), load<1>(halves + 9));
  store(reinterpret_cast<BF16*>(to + 7) + 1, load<1>(halves + 3));
  store(reinterpret_cast<float*>(to + 8), load<8>(floats));
  store(reinterpret_cast<double*>(to + 16), load<2>(doubles + 2));
  store(reinterpret_cast<double*>(to + 20), load<1>(doubles + 1));
  store_shared(shared + 8 * t, load<8>(floats));
  __syncthreads();
  Vec<float, 4> other = load<4>(shared + 8 * (kThreads - 1 - t) + 4);
  keep_packed(other);
  store(reinterpret_cast<float*>(to + 24), other);
  to[22] = to[23] = to[28] = to[29] = to[30] = to[31] = 7;
}

/// Parts of vectors, of 0 to W elements, and what the host-side choice between vectors and elements does.
__global__ void parts_of_vectors(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const auto* const halves = reinterpret_cast<const BF16*>(in + 4 * i);
  uint32_t* const to = out + 12 * i;
  for (int k = 0; k < 12; ++k) to[k] = 0x01010101U * static_cast<uint32_t>(k);
  const int count = i % 11 - 1;
  store_part(reinterpret_cast<BF16*>(to), load_part<8>(halves, count), 8);
  store_part(reinterpret_cast<BF16*>(to + 4), load<8>(halves), count);
  store_some(reinterpret_cast<BF16*>(to + 8), load_some<8>(halves, count, true), count, i % 2 == 0);
}

/// Dynamic shared memory: a matrix written by rows and read by columns.
__global__ void dynamic_shared(const uint32_t* in, uint32_t* out) {
  ASHLAR_DYNAMIC_SHARED(uint32_t, shared);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  for (int k = 0; k < 4; ++k) shared[4 * t + k] = in[4 * i + k];
  __syncthreads();
  for (int k = 0; k < 4; ++k) out[4 * i + k] = shared[kThreads * k + t];
}

/// Each warp loads 8 x 8 matrices of its own 32 rows, at a stride of 5 chunks of 16 bytes.
template <int kMatrices, bool kTransposed>
__global__ void matrices(const uint32_t* in, uint32_t* out) {
  constexpr int kStride = 20;  // words
  ASHLAR_SHARED(uint4, shared, [kThreads * kStride / 4]);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  auto* const words = reinterpret_cast<uint32_t*>(shared);
  for (int k = 0; k < 4; ++k) words[kStride * t + k] = in[4 * i + k];
  __syncthreads();
  const int row = t - t % 32 + t % (8 * kMatrices);
  const uint32_t address = shared_address(words + kStride * row);
  uint32_t r[kMatrices];
  if constexpr (kMatrices == 1) kTransposed ? ldmatrix_x1_trans(r, address) : ldmatrix_x1(r, address);
  if constexpr (kMatrices == 2) kTransposed ? ldmatrix_x2_trans(r, address) : ldmatrix_x2(r, address);
  if constexpr (kMatrices == 4) kTransposed ? ldmatrix_x4_trans(r, address) : ldmatrix_x4(r, address);
  for (int k = 0; k < kMatrices; ++k) out[kMatrices * i + k] = r[k];
}

/// Two groups of copies on their way, the first waited for alone; parts of 0 to kBytes are read, the rest is zero.
template <int kBytes>
__global__ void asynchronous_copies(const uint32_t* in, uint32_t* out) {
  constexpr int kWords = kBytes / 4;
  ASHLAR_SHARED(uint4, shared, [2 * kThreads]);
  const int i = thread_of_grid(), t = static_cast<int>(threadIdx.x);
  auto* const words = reinterpret_cast<uint32_t*>(shared);
  const uint32_t* const from = in + 8 * i;
  cp_async<kBytes>(shared_address(words + kWords * t), from, kBytes);
  cp_async_commit_group();
  cp_async<kBytes>(shared_address(words + kWords * (kThreads + t)), from + 4, t % (kBytes + 1));
  cp_async_commit_group();
  cp_async_wait_group<1>();
  __syncthreads();
  for (int k = 0; k < kWords; ++k) out[2 * kWords * i + k] = words[kWords * (kThreads - 1 - t) + k];
  cp_async_wait_group<0>();
  __syncthreads();
  for (int k = 0; k < kWords; ++k) out[2 * kWords * i + kWords + k] = words[kWords * (2 * kThreads - 1 - t) + k];
}

}  // namespace

std::span<const Case> memory_cases() {
  constexpr Inputs kBits = Inputs::kBits;
  static const Case cases[] = {
      {.name = "vectors", .kernel = vectors, .inputs = kBits, .words_in = 8, .words_out = 32},
      {.name = "parts_of_vectors", .kernel = parts_of_vectors, .inputs = kBits, .words_in = 4, .words_out = 12},
      {.name = "dynamic_shared",
       .kernel = dynamic_shared,
       .inputs = kBits,
       .words_in = 4,
       .words_out = 4,
       .shared_bytes = 16 * kThreads},
      {.name = "matrices_x1", .kernel = matrices<1, false>, .inputs = kBits, .words_in = 4, .words_out = 1},
      {.name = "matrices_x2", .kernel = matrices<2, false>, .inputs = kBits, .words_in = 4, .words_out = 2},
      {.name = "matrices_x4", .kernel = matrices<4, false>, .inputs = kBits, .words_in = 4, .words_out = 4},
      {.name = "matrices_x1_trans", .kernel = matrices<1, true>, .inputs = kBits, .words_in = 4, .words_out = 1},
      {.name = "matrices_x2_trans", .kernel = matrices<2, true>, .inputs = kBits, .words_in = 4, .words_out = 2},
      {.name = "matrices_x4_trans", .kernel = matrices<4, true>, .inputs = kBits, .words_in = 4, .words_out = 4},
      {.name = "copies_of_4_bytes", .kernel = asynchronous_copies<4>, .inputs = kBits, .words_in = 8, .words_out = 2},
      {.name = "copies_of_8_bytes", .kernel = asynchronous_copies<8>, .inputs = kBits, .words_in = 8, .words_out = 4},
      {.name = "copies_of_16_bytes", .kernel = asynchronous_copies<16>, .inputs = kBits, .words_in = 8, .words_out = 8},
  };
  return cases;
}

}  // namespace ashlar::ASHLAR_DEV::conformance
