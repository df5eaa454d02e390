#pragma once

#include <cstdint>

#include "kernels/cuda/dev/kernel.h"

/// The inline PTX of the kernels, one small function for each instruction. Most functions have the name of their
/// instruction in the PTX ISA.
namespace ashlar::ASHLAR_DEV {

#if defined(__CUDACC__)
#define ASHLAR_PTX __device__ __forceinline__
#define ASHLAR_PTX_LOC
#define ASHLAR_PTX_ONLY_LOC
#else
#define ASHLAR_PTX inline
#define ASHLAR_PTX_LOC , emulator::Loc loc = emulator::Loc::here()
#define ASHLAR_PTX_ONLY_LOC emulator::Loc loc = emulator::Loc::here()
#endif

/// The 32-bit address of a pointer into shared memory, as used by shared-memory instructions.
ASHLAR_PTX uint32_t shared_address(const void* pointer ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
#else
  return emulator::shared_address(pointer, loc);
#endif
}

/// One warp computes d [16, 8] fp32 = a [16, 16] bf16 times b [16, 8] bf16 plus c [16, 8] fp32. d may be c.
/// The elements of a lane, by (row, column), with g = lane / 4 and q = lane % 4:
/// - a[0..3]: two adjacent columns each, the lower one in the low half, from (g, 2q), (g + 8, 2q), (g, 2q + 8) and
///   (g + 8, 2q + 8)
/// - b[0..1]: two adjacent rows each, the lower one in the low half, from (2q, g) and (2q + 8, g)
/// - c[0..3] and d[0..3]: one element each, (g, 2q), (g, 2q + 1), (g + 8, 2q) and (g + 8, 2q + 1)
ASHLAR_PTX void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             const float (&c)[4] ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  emulator::mma_m16n8k16_bf16(d, a, b, c, loc);
#endif
}

/// Loads 4 matrices of 8 x 8 values of 16 bits from shared memory. Lanes 8 * i to 8 * i + 7 pass the addresses of the
/// rows of matrix i, which have 16 bytes each. In lane l, r[i] receives two values of matrix i: row l / 4, columns
/// 2 * (l % 4) and 2 * (l % 4) + 1. ldmatrix_x4_trans receives the same values of the transposed matrices.
ASHLAR_PTX void ldmatrix_x4(uint32_t (&r)[4], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  emulator::ldmatrix(r, 4, false, address, loc);
#endif
}
ASHLAR_PTX void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  emulator::ldmatrix(r, 4, true, address, loc);
#endif
}

/// Starts a copy of kBytes (4, 8 or 16) bytes from global to shared memory. Both addresses are aligned to kBytes. Only
/// the first `source_bytes` bytes are read; the rest of the destination becomes zero. With source_bytes = 0 nothing is
/// read, and `from` may be any address.
template <int kBytes>
ASHLAR_PTX void cp_async(uint32_t to, const void* from, int source_bytes ASHLAR_PTX_LOC) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if defined(__CUDACC__)
  if constexpr (kBytes == 16) {  // bypasses L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(source_bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
#else
  emulator::cp_async({.to = to, .from = from, .bytes = kBytes, .source_bytes = source_bytes}, loc);
#endif
}

/// Puts this thread's cp_async copies since its last commit into one group.
ASHLAR_PTX void cp_async_commit_group() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
  emulator::cp_async_commit_group();
#endif
}

/// Waits until at most kPending of this thread's copy groups are pending. Other threads see the copied data only after
/// a barrier.
template <int kPending>
ASHLAR_PTX void cp_async_wait_group(ASHLAR_PTX_ONLY_LOC) {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#else
  emulator::cp_async_wait_group(kPending, loc);
#endif
}

/// Returns 2^x within about 2 ulp. Subnormal arguments and results are flushed to zero.
ASHLAR_PTX float ex2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emulator::approximate::ex2(x, true);
#endif
}

/// Stores a word of up to 16 bytes to global memory by one instruction. After a branch the compiler would split a plain
/// store of the word into one store per member.
template <typename Word>
ASHLAR_PTX void store_global(Word* to, const Word& word) {
#if defined(__CUDACC__)
  const auto address = __cvta_generic_to_global(to);
  if constexpr (sizeof(Word) == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"l"(address), "r"(word.x), "r"(word.y), "r"(word.z),
                 "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(Word) == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};\n" ::"l"(address), "r"(word.x), "r"(word.y) : "memory");
  } else {
    *to = word;
  }
#else
  *to = word;
#endif
}

}  // namespace ashlar::ASHLAR_DEV
