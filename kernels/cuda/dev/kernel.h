#pragma once

/// The CUDA header of kernel files. The same source is compiled by nvcc into namespace `cuda` and, for tests, by the
/// host compiler for another device: ASHLAR_DEVICE_HEADER is then the header that defines that device, its namespace
/// ASHLAR_DEV and the macros below. Single instructions are in ptx.h.
///
/// Files of the `cuda` namespace without kernels, which call vendor libraries, are compiled by the host compiler with
/// ASHLAR_CUDA_HOST defined: they see the runtime's functions but no kernels.

#if defined(__CUDACC__) || defined(ASHLAR_CUDA_HOST)
#define ASHLAR_ON_CUDA  // a CUDA device
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
/// For loops in which unrolling would cost registers and gain nothing.
#define ASHLAR_NO_UNROLL _Pragma("unroll 1")

#elif defined(ASHLAR_DEVICE_HEADER)
#include ASHLAR_DEVICE_HEADER
#else
#error "compile kernels/cuda with nvcc, or name a device with ASHLAR_DEVICE_HEADER"
#endif
