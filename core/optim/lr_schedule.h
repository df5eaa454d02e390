#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar::optim {

enum class LrScheduleKind : uint8_t { kConstant, kLinear, kCosine, kWsd, kInvSqrt };
constexpr auto names_of(LrScheduleKind) {
  return enum_names<LrScheduleKind>("constant", "linear", "cosine", "wsd", "inv_sqrt");
}
using ashlar::name_of;

/// Learning rate as a pure function of the step s = 0, 1, ..., steps-1. In the first w = warmup_steps steps it is
/// peak * (s+1)/w. After the warmup it is, with m = min_ratio and p = min((s-w)/decay_steps, 1):
///   constant        peak
///   linear          peak * (1 - (1-m)p), from peak to m*peak in decay_steps steps, then m*peak
///   cosine          peak * (m + (1-m)(1+cos(pi p))/2), from peak to m*peak in decay_steps steps, then m*peak
///   wsd             peak until steps-decay_steps, then linear to m*peak at `steps` (Hu et al. 2024, arXiv:2404.06395)
///   inv_sqrt        peak * sqrt(max(w,1)/max(s+1, w, 1)), but at least m*peak
struct LrSchedule {
  LrScheduleKind kind = LrScheduleKind::kCosine;
  double peak = 0;
  int64_t steps = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double min_ratio = 0.1;

  double lr(int64_t step) const;
};

}  // namespace ashlar::optim
