#pragma once

#include "core/base/error.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// A function compiled for several instruction sets. The backend chooses, not Highway, whose choice is one for the
/// whole process, so that a process can have backends for several of them.
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

/// `function` of this place's HWY_NAMESPACE, compiled for `isa`; in a file's HWY_ONCE part.
#define ASHLAR_FOR_ISA(isa, function) \
  ::ashlar::cpu::for_isa(isa, &N_AVX3::function, &N_AVX2::function, &HWY_STATIC_DISPATCH(function))

/// Defines the launch of a kernel that is `function(args, threads)`, likewise.
#define ASHLAR_LAUNCH_FOR_ISA(Args, function) \
  void CpuBackend::launch(const Args& args, Stream&) { ASHLAR_FOR_ISA(info_.isa, function)(args, threads_); }
