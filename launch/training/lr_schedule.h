#pragma once

#include <cstdint>
#include <optional>

#include "core/optim/schedule.h"
#include "launch/config/run_config.h"
#include "launch/training/run_events.h"

namespace ashlar::training {

/// The learning rate of a run, step by step.
optim::Schedule schedule_of(const config::RunConfig& config);

/// What becomes of the learning rate where a run goes on behind `step` with another number of steps than it was begun
/// with (`before`); nothing where it has as many, or where its decay ends with the run and no step gets another rate.
std::optional<ScheduleAtNewSteps> schedule_at_new_steps(const config::RunConfig& before, const config::RunConfig& now,
                                                        int64_t step);

}  // namespace ashlar::training
