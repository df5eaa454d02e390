#pragma once

#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Compute actions that a stage runs in sequence, without a transfer between them.
using Round = std::vector<Action>;

/// Inserts the transfers between the rounds. `rounds` has one list per stage, in execution order. Each round takes one
/// tick of a common clock, and begins as early as its inputs and the earlier rounds of its stage allow. A tensor is
/// transferred at the tick at which the round that uses it begins, before that round. All exchanges and rounds, in the
/// order of the clock, form one global list, of which each stage gets its part. The earliest unfinished entry of the
/// global list can always run, so there is no deadlock. Tensors that two stages send to each other at the same tick
/// share one exchange. Throws Bug when the rounds depend on each other in a cycle.
std::vector<ActionList> add_transfers(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds);
/// Returns only the list of one stage, equal to the one from add_transfers. The rounds of all stages are needed to
/// compute the clock.
ActionList add_transfers_of(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds, int64_t stage);

}  // namespace ashlar::pipeline
