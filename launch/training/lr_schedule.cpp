#include "launch/training/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace ashlar::training {

optim::LrSchedule schedule_of(const config::RunConfig& c) {
  return {.kind = c.schedule.kind,
          .peak = c.optimizer.lr,
          .steps = c.train.steps,
          .warmup_steps = c.schedule.warmup_steps,
          .decay_steps = c.schedule.decay_steps,
          .min_ratio = c.schedule.min_ratio};
}

std::optional<ScheduleAtNewSteps> schedule_at_new_steps(const config::RunConfig& before, const config::RunConfig& now,
                                                        int64_t step) {
  const optim::LrSchedule was = schedule_of(before), is = schedule_of(now);
  if (was.steps == is.steps || step >= is.steps) return std::nullopt;
  const bool wsd = is.kind == optim::LrScheduleKind::kWsd;
  const bool decays = wsd || is.kind == optim::LrScheduleKind::kLinear || is.kind == optim::LrScheduleKind::kCosine;
  ScheduleAtNewSteps event{.kind = std::string(optim::name_of(is.kind)),
                           .step = step,
                           .steps = is.steps,
                           .lr_before = was.lr(std::max<int64_t>(step - 1, 0)),
                           .lr_next = is.lr(step),
                           .lr_next_before = was.lr(step),
                           .lr_last = is.lr(is.steps - 1)};
  if (decays) {
    event.decay_begin = wsd ? is.steps - is.decay_steps : is.warmup_steps;
    event.decay_end = event.decay_begin + is.decay_steps;
  }
  const bool jumps = std::abs(event.lr_next - event.lr_next_before) > 1e-12 * is.peak;
  if (!jumps && (!decays || event.decay_end == is.steps)) return std::nullopt;
  return event;
}

}  // namespace ashlar::training
