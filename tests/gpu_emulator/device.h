#pragma once

/// The emulator in the place of the CUDA headers: kernels/cuda/dev/kernel.h includes this file where the build defines
/// ASHLAR_DEVICE_HEADER as its path (see CMakeLists.txt here). Kernels are then compiled by the host's compiler, into
/// namespace `emulated`, or `instrumented` where their memory accesses are watched.

#if defined(ASHLAR_INSTRUMENTED)
#define ASHLAR_DEV instrumented
#else
#define ASHLAR_DEV emulated
#endif

#include "tests/gpu_emulator/emulator.h"
#include "tests/gpu_emulator/intrinsics.h"

#define ASHLAR_SHARED(T, name, ...)                                              \
  using name##_shared_t = T __VA_ARGS__;                                         \
  static const char name##_shared_key = 0;                                       \
  auto& name = *static_cast<name##_shared_t*>(::ashlar::emulator::static_shared( \
      &name##_shared_key, sizeof(name##_shared_t), alignof(name##_shared_t), ::ashlar::emulator::Loc::here()))
#define ASHLAR_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::ashlar::emulator::dynamic_shared(::ashlar::emulator::Loc::here()))
#define ASHLAR_UNROLL
#define ASHLAR_NO_UNROLL
