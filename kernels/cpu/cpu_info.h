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

/// Resources of the machine for this process.
struct CpuInfo {
  Isa isa = Isa::kBaseline;  ///< the fastest that is detected and allowed
  Isa detected = Isa::kBaseline;
  int cores = 1;      ///< cores that this process may use (usable_cores in core/device/host_limits.h)
  std::string model;  ///< the processor's model name
};

/// Detects the processor. `max_isa` ("", "baseline", "avx2", "avx512", "avx512_bf16") limits `isa`; so does the
/// environment variable ASHLAR_MAX_ISA (same words), read only here. The lower limit applies. If the bf16 dot product
/// is slower than widening to fp32 (Intel), `isa` is below avx512_bf16 unless `max_isa` or ASHLAR_MAX_ISA requests it.
/// A build for one machine (ASHLAR_NATIVE) has one instruction set, avx512_bf16 beside avx512.
/// Throws input_error for an unknown word in `max_isa` or ASHLAR_MAX_ISA, and if `isa` is below what the build has.
CpuInfo detect_cpu(std::string_view max_isa = {});

/// Measures, for about `seconds`, the multiply-add rate in FLOP/s of the cores of `threads` on registers only: for fp32
/// and fp64 the FMA at the vector width of `isa`; for bf16 the dot-product instruction, or without one the fp32 rate.
/// Every "percent of peak" is relative to it.
double measure_peak(DType dtype, Threads& threads, Isa isa, double seconds);

}  // namespace ashlar::cpu
