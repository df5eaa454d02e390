#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar::optim {

enum class LrScheduleKind : uint8_t { kConstant, kLinear, kCosine, kWsd, kInvSqrt };
constexpr auto names_of(LrScheduleKind) {
  return enum_names<LrScheduleKind>("constant", "linear", "cosine", "wsd", "inv_sqrt");
}
using ashlar::name_of;

/// Learning rate as a pure function of the step s = 0, 1, ..., steps-1.
///   s < warmup      peak * (s+1)/warmup
///   constant        peak
///   linear, cosine  from peak at `warmup` to min_ratio*peak `decay_steps` later, then there: with
///                   p = (s-warmup)/decay_steps, linear 1-(1-min)p, cosine min+(1-min)(1+cos(pi p))/2
///   wsd             peak until steps-decay_steps, then linear to min_ratio*peak at `steps` (Hu et al. 2024,
///                   arXiv:2404.06395)
///   inverse sqrt    peak*sqrt(max(warmup,1)/max(s+1, warmup, 1)), not below min_ratio*peak
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
