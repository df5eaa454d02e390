#pragma once

#include <cstdint>
#include <optional>

#include "core/optim/lr_schedule.h"
#include "launch/config/run_config.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

/// The learning rate schedule of a run.
optim::LrSchedule schedule_of(const config::RunConfig& config);

/// The effect of a changed train.steps on the learning rate, for a run that resumes after `step` and had the
/// configuration `before`. Nothing when train.steps is unchanged, or when the decay ends at the last step and no rate
/// changes.
std::optional<ScheduleAtNewSteps> schedule_at_new_steps(const config::RunConfig& before, const config::RunConfig& now,
                                                        int64_t step);

}  // namespace ashlar::training
