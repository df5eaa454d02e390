#pragma once

#include <cstdint>

#include "kernels/cuda/dev/ptx.h"

/// Instructions that the emulator models and no kernel uses yet, beside those of kernels/cuda/dev/ptx.h. A kernel that
/// needs one takes it there.
namespace ashlar::ASHLAR_DEV {

/// As ldmatrix_x4, of 1 or 2 matrices.
ASHLAR_PTX void ldmatrix_x1(uint32_t (&r)[1], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];\n" : "=r"(r[0]) : "r"(address) : "memory");
#else
  emulator::ldmatrix(r, 1, false, address, loc);
#endif
}
ASHLAR_PTX void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];\n" : "=r"(r[0]) : "r"(address) : "memory");
#else
  emulator::ldmatrix(r, 1, true, address, loc);
#endif
}
ASHLAR_PTX void ldmatrix_x2(uint32_t (&r)[2], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
#else
  emulator::ldmatrix(r, 2, false, address, loc);
#endif
}
ASHLAR_PTX void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
#else
  emulator::ldmatrix(r, 2, true, address, loc);
#endif
}

/// A barrier in shared memory (8 bytes, aligned to 8) whose phase ends when `arrivals` threads and all expected bytes
/// have come.
ASHLAR_PTX void mbarrier_init(uint32_t address, int arrivals ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(address), "r"(arrivals) : "memory");
#else
  emulator::mbarrier_init(address, arrivals, loc);
#endif
}
ASHLAR_PTX void mbarrier_arrive(uint32_t address ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(address) : "memory");
#else
  emulator::mbarrier_arrive(address, loc);
#endif
}
/// Waits until the phase of this parity (0 for the first) has ended.
ASHLAR_PTX void mbarrier_wait_parity(uint32_t address, int parity ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
#define ASHLAR_PTX_WAIT "mbarrier.try_wait.parity"  // sleeps for a while
#else
#define ASHLAR_PTX_WAIT "mbarrier.test_wait.parity"
#endif
    asm volatile(
        "{\n"
        ".reg .pred over;\n" ASHLAR_PTX_WAIT
        ".shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
#undef ASHLAR_PTX_WAIT
  }
#else
  emulator::mbarrier_wait_parity(address, parity, loc);
#endif
}

/// Barrier `id` (1 to 15) between `threads` threads, whole warps: bar.sync waits for them, bar.arrive only counts.
ASHLAR_PTX void bar_sync(int id, int threads ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#else
  emulator::named_barrier_sync(id, threads, loc);
#endif
}
ASHLAR_PTX void bar_arrive(int id, int threads ASHLAR_PTX_LOC) {
#if defined(__CUDACC__)
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#else
  emulator::named_barrier_arrive(id, threads, loc);
#endif
}

}  // namespace ashlar::ASHLAR_DEV
