#include "core/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace ashlar::optim {

double LrSchedule::lr(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  // Returns the completed fraction, from 0 to 1, of a decay that starts at step `begin`.
  const auto progress = [&](int64_t begin) {
    if (decay_steps <= 0) return step < begin ? 0.0 : 1.0;
    return std::clamp(static_cast<double>(step - begin) / static_cast<double>(decay_steps), 0.0, 1.0);
  };
  switch (kind) {
    case LrScheduleKind::kConstant: return peak;
    case LrScheduleKind::kLinear: return peak * (1 - (1 - min_ratio) * progress(warmup_steps));
    case LrScheduleKind::kCosine:
      return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * progress(warmup_steps))));
    case LrScheduleKind::kWsd: return peak * (1 - (1 - min_ratio) * progress(steps - decay_steps));
    case LrScheduleKind::kInvSqrt: {
      const double reference = static_cast<double>(std::max<int64_t>(warmup_steps, 1));
      const double at = std::max(static_cast<double>(step + 1), reference);
      return peak * std::max(std::sqrt(reference / at), min_ratio);
    }
  }
  throw Bug("[schedule] unknown kind");
}

}  // namespace ashlar::optim
