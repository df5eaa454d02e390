#include "kernels/cpu/cpu_info.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/base/error.h"
#include "core/device/host_limits.h"

namespace ashlar::cpu {
namespace {

Isa detected_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return Isa::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

/// On Intel, vdpbf16ps has half the rate of fp32 multiply-adds (Sapphire Rapids: 148 and 276 GFLOP/s on two cores), so
/// kernels without it are preferred; on AMD it has twice the rate (Zen 4: 472 and 236). The choice depends on the
/// vendor name and not on a measurement, since results must not depend on noise.
Isa preferred_isa(Isa detected) {
  return detected == Isa::kAvx512Bf16 && __builtin_cpu_is("intel") ? Isa::kAvx512 : detected;
}

// The lowest and the highest instruction set for which this build has kernels.
#ifndef ASHLAR_NATIVE_ISA
constexpr Isa kLowest = Isa::kBaseline, kHighest = Isa::kAvx512Bf16;
#else
constexpr Isa kLowest{ASHLAR_NATIVE_ISA};
constexpr Isa kHighest = kLowest == Isa::kAvx512 ? Isa::kAvx512Bf16 : kLowest;
#endif

Isa parse_isa(std::string_view where, std::string_view word) {
  Isa isa{};
  if (parse_enum(word, isa)) return isa;
  throw input_error("cpu", where, " = \"", word,
                    "\" is not an instruction set; use baseline, avx2, avx512 or avx512_bf16");
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

CpuInfo detect_cpu(std::string_view max_isa) {
  CpuInfo info;
  info.detected = detected_isa();
  Isa limit = kHighest;
  bool named = false;
  const auto hold = [&](std::string_view where, std::string_view word) {
    if (word.empty()) return;
    limit = std::min(limit, parse_isa(where, word));
    named = true;
  };
  const char* environment = std::getenv("ASHLAR_MAX_ISA");
  hold("--isa", max_isa);
  hold("ASHLAR_MAX_ISA", environment == nullptr ? "" : environment);
  info.isa = std::min(named ? info.detected : preferred_isa(info.detected), limit);
  if (info.isa < kLowest) {
    throw input_error("cpu", "expected a processor with ", name_of(kLowest),
                      " and no limit below that in --isa or ASHLAR_MAX_ISA, got ", name_of(info.isa),
                      ": this program was built for one machine only, e.g. by ./quickstart; build ",
                      "it for every machine with: cmake --preset release && cmake --build build");
  }
  info.cores = static_cast<int>(usable_cores());
  info.model = processor_name();
  return info;
}

}  // namespace ashlar::cpu
