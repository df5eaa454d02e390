#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace ashlar::cpu {

class Threads;

/// Instruction sets a kernel may be chosen for, each containing the ones before it.
enum class Isa : uint8_t {
  kBaseline,    ///< x86-64 without AVX2
  kAvx2,        ///< AVX2 + FMA
  kAvx512,      ///< AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  ///< the same with vdpbf16ps
};
std::string_view name_of(Isa isa);  ///< "baseline", "avx2", "avx512", "avx512_bf16"

/// What this process may use of the machine.
struct CpuInfo {
  Isa isa = Isa::kBaseline;  ///< the fastest both detected and allowed
  Isa detected = Isa::kBaseline;
  int cores = 1;      ///< cores that this process may use (usable_cores in core/device/host_limits.h)
  std::string model;  ///< the processor's own name
};

/// Detects the processor. `max_isa` ("", "baseline", "avx2", "avx512", "avx512_bf16") holds `isa` down; so do the
/// environment variable ASHLAR_MAX_ISA (same words), read here and nowhere else. The lower wins. Where the bf16 dot
/// product is slower than widening to fp32 (Intel), `isa` stays below avx512_bf16 unless `max_isa` or ASHLAR_MAX_ISA
/// names that. Throws input_error for an unknown word in `max_isa` or ASHLAR_MAX_ISA.
CpuInfo detect_cpu(std::string_view max_isa = {});

/// Multiply-add rate in FLOP/s of the cores of `threads` on registers only, measured now for about `seconds`: fp32 and
/// fp64 FMA at the vector width of `isa`; bf16 the dot-product instruction, or the fp32 rate where there is none. The
/// yardstick for every "percent of peak".
double measure_peak(DType dtype, Threads& threads, Isa isa, double seconds);

}  // namespace ashlar::cpu
