#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace ashlar::cpu {

class Threads;

/// Instruction sets for kernels, each including the previous ones.
enum class Isa : uint8_t {
  kBaseline,    ///< x86-64 without AVX2
  kAvx2,        ///< AVX2 + FMA
  kAvx512,      ///< AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  ///< kAvx512 with vdpbf16ps
};
constexpr auto names_of(Isa) { return enum_names<Isa>("baseline", "avx2", "avx512", "avx512_bf16"); }
using ashlar::name_of;

/// Instruction sets, usable cores and model name of the processor.
struct CpuInfo {
  Isa isa = Isa::kBaseline;       ///< instruction set of the kernels: the fastest that is detected and allowed
  Isa detected = Isa::kBaseline;  ///< highest instruction set of the processor
  int cores = 1;                  ///< cores that this process may use (usable_cores in core/device/host_limits.h)
  std::string model;              ///< the processor's model name
};

/// Detects the processor. `max_isa` ("", "baseline", "avx2", "avx512", "avx512_bf16") limits CpuInfo::isa; so does the
/// environment variable ASHLAR_MAX_ISA, which takes the same values. The lower limit applies. On processors whose bf16
/// dot product is slower than widening to fp32 (Intel), the result is at most avx512 unless `max_isa` or ASHLAR_MAX_ISA
/// is set. A build for one machine (ASHLAR_NATIVE) has kernels for one instruction set only, except that a build for
/// avx512 also has those for avx512_bf16. Throws input_error for an unknown value of `max_isa` or ASHLAR_MAX_ISA, and
/// if the result is below the instruction set of a build for one machine.
CpuInfo detect_cpu(std::string_view max_isa = {});

/// Returns the rate in FLOP/s of multiply-adds on registers, of all `threads` together, measured for about `seconds`.
/// fp32 and fp64 use the FMA at the vector width of `isa`. bf16 uses the dot-product instruction if `isa` has one;
/// otherwise the result is the fp32 rate. Every "percent of peak" is relative to this rate.
double measure_peak(DType dtype, Threads& threads, Isa isa, double seconds);

}  // namespace ashlar::cpu
