#pragma once

#include <cstdint>
#include <optional>

#include "core/optim/lr_schedule.h"
#include "launch/config/run_config.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

/// The learning rate schedule of a run.
optim::LrSchedule schedule_of(const config::RunConfig& config);

/// Returns how a changed train.steps affects the learning rate of a run that resumes after `step`. `before`: the
/// configuration before the resume; `now`: the new one. Returns nothing in three cases: train.steps is unchanged; no
/// step remains; the next step keeps its rate, and the decay (if there is one) ends at the last step.
std::optional<ScheduleAtNewSteps> schedule_at_new_steps(const config::RunConfig& before, const config::RunConfig& now,
                                                        int64_t step);

}  // namespace ashlar::training
