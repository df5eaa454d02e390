#pragma once

#include "core/base/error.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// A function that is compiled for several instruction sets. The backend chooses one of them. Highway's own choice
/// would be one for the whole process, but a process may have backends for several instruction sets.
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

// A build for one machine has one instruction set, which detect_cpu demands.
#ifndef ASHLAR_NATIVE_ISA
#define ASHLAR_AVX512(function) N_AVX3::function
#define ASHLAR_AVX2(function) N_AVX2::function
#else
#define ASHLAR_AVX512(function) HWY_STATIC_DISPATCH(function)
#define ASHLAR_AVX2(function) HWY_STATIC_DISPATCH(function)
#endif

/// `function` of the HWY_NAMESPACE at this place, compiled for `isa`. Use it in the HWY_ONCE part of a file.
#define ASHLAR_FOR_ISA(isa, function) \
  ::ashlar::cpu::for_isa(isa, &ASHLAR_AVX512(function), &ASHLAR_AVX2(function), &HWY_STATIC_DISPATCH(function))

/// Defines the launch of a kernel that is `function(args, threads)`, likewise.
#define ASHLAR_LAUNCH_FOR_ISA(Args, function) \
  void CpuBackend::launch(const Args& args, Stream&) { ASHLAR_FOR_ISA(info_.isa, function)(args, threads_); }
