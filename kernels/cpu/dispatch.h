#pragma once

#include "core/base/error.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// Returns the variant for `isa` of a function that is compiled for several instruction sets. Highway's own dispatch
/// makes one choice for the whole process, but a process may have backends for several instruction sets.
template <typename Function>
Function* for_isa(Isa isa, Function* avx512, Function* avx2, Function* baseline) {
  switch (isa) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512: return avx512;
    case Isa::kAvx2: return avx2;
    case Isa::kBaseline: return baseline;
  }
  throw Bug("[cpu] unknown instruction set");
}

}  // namespace ashlar::cpu

// A build for one machine (ASHLAR_NATIVE) has kernels for one instruction set. detect_cpu throws if the CPU lacks it.
#ifndef ASHLAR_NATIVE_ISA
#define ASHLAR_AVX512(function) N_AVX3::function
#define ASHLAR_AVX2(function) N_AVX2::function
#else
#define ASHLAR_AVX512(function) HWY_STATIC_DISPATCH(function)
#define ASHLAR_AVX2(function) HWY_STATIC_DISPATCH(function)
#endif

/// Returns the address of the variant for `isa` of `function`, which is declared in HWY_NAMESPACE of the current
/// namespace. Use it in the HWY_ONCE part of a file.
#define ASHLAR_FOR_ISA(isa, function) \
  ::ashlar::cpu::for_isa(isa, &ASHLAR_AVX512(function), &ASHLAR_AVX2(function), &HWY_STATIC_DISPATCH(function))

/// Defines CpuBackend::launch(const Args&, ...) as a call of `function(args, threads)`, compiled for the backend's
/// instruction set. Use it in the HWY_ONCE part of a file.
#define ASHLAR_LAUNCH_FOR_ISA(Args, function) \
  void CpuBackend::launch(const Args& args, Stream&) { ASHLAR_FOR_ISA(info_.isa, function)(args, threads_); }
