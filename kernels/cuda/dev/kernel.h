#pragma once

/// Kernel files include this header instead of CUDA's headers. nvcc compiles them into namespace `cuda`. Tests compile
/// the same source with the host compiler for an emulated device: ASHLAR_DEVICE_HEADER then names the header that
/// defines the device, its namespace ASHLAR_DEV and the macros below. Single instructions are in ptx.h.
///
/// Files of namespace `cuda` that call vendor libraries but have no kernels are compiled by the host compiler with
/// ASHLAR_CUDA_HOST defined. They see the functions of the CUDA runtime, but no kernels.

#if defined(__CUDACC__) || defined(ASHLAR_CUDA_HOST)
#define ASHLAR_ON_CUDA  // the device is a GPU, not an emulated device
#define ASHLAR_DEV cuda
#endif

#if defined(ASHLAR_CUDA_HOST)

#include <cuda_runtime_api.h>

#elif defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

/// Declares a static array in shared memory: ASHLAR_SHARED(float, sums, [32]);
#define ASHLAR_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
/// Declares `name` as a pointer to the dynamic shared memory (Launch::shared_bytes), aligned to 128 bytes.
#define ASHLAR_DYNAMIC_SHARED(T, name)                                          \
  extern __shared__ __align__(128) unsigned char ashlar_dynamic_shared_block[]; \
  T* const name = reinterpret_cast<T*>(ashlar_dynamic_shared_block)
#define ASHLAR_UNROLL _Pragma("unroll")
/// For loops in which unrolling would cost registers and gain nothing.
#define ASHLAR_NO_UNROLL _Pragma("unroll 1")

#elif defined(ASHLAR_DEVICE_HEADER)
#include ASHLAR_DEVICE_HEADER
#else
#error "compile kernels/cuda with nvcc, or define ASHLAR_DEVICE_HEADER as the header of an emulated device"
#endif
