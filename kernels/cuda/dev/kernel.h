#pragma once

/// The one CUDA header of a kernel file. The same source is compiled by nvcc into namespace `cuda` and by the host's
/// compiler, against the emulator of kernels/cuda_host, into namespace `emulated` (or `instrumented`, where memory
/// accesses are watched). What they spell differently is here; single instructions are in ptx.h.
///
/// Files of the `cuda` namespace without kernels, which call vendors' libraries, are compiled by the host's compiler
/// with ASHLAR_CUDA_HOST defined: they see the runtime's functions and no kernel.

#if defined(__CUDACC__) || defined(ASHLAR_CUDA_HOST)
#define ASHLAR_ON_CUDA  // a CUDA device, not an emulated one
#define ASHLAR_DEV cuda
#endif

#if defined(ASHLAR_CUDA_HOST)

#include <cuda_runtime_api.h>

#elif defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

/// A static array in shared memory: ASHLAR_SHARED(float, sums, [32]);
#define ASHLAR_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
/// The shared memory of the launch's `shared_bytes`, aligned to 128 bytes.
#define ASHLAR_DYNAMIC_SHARED(T, name)                                          \
  extern __shared__ __align__(128) unsigned char ashlar_dynamic_shared_block[]; \
  T* const name = reinterpret_cast<T*>(ashlar_dynamic_shared_block)
#define ASHLAR_UNROLL _Pragma("unroll")
/// Where unrolling would only cost registers.
#define ASHLAR_NO_UNROLL _Pragma("unroll 1")

#else

#if defined(ASHLAR_INSTRUMENTED)
#define ASHLAR_DEV instrumented
#else
#define ASHLAR_DEV emulated
#endif
#include "kernels/cuda_host/intrinsics.h"

#define ASHLAR_SHARED(T, name, ...)                                              \
  using name##_shared_t = T __VA_ARGS__;                                         \
  static const char name##_shared_key = 0;                                       \
  auto& name = *static_cast<name##_shared_t*>(::ashlar::emulator::static_shared( \
      &name##_shared_key, sizeof(name##_shared_t), alignof(name##_shared_t), ::ashlar::emulator::Loc::here()))
#define ASHLAR_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::ashlar::emulator::dynamic_shared(::ashlar::emulator::Loc::here()))
#define ASHLAR_UNROLL
#define ASHLAR_NO_UNROLL

#endif
