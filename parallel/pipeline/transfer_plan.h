#pragma once

#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Compute actions of a stage that run without a transfer between them.
using Round = std::vector<Action>;

/// Puts the transfers between the rounds of all stages, [stages] lists in the order they run. Rounds are laid on a
/// common clock, each one tick long and as early as its inputs allow; a tensor moves at the tick at which the round
/// that uses it begins. Every stage's list is cut from the one list of all exchanges and rounds in clock order: the
/// earliest entry that is not done has nothing to wait for, so no order of waiting can lock up. Opposite tensors
/// between two stages at one tick share an exchange. Throws Bug when the rounds themselves wait for each other in a
/// circle.
std::vector<ActionList> add_transfers(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds);
/// The list of one stage, the same as among those of all: only the clock looks at the rounds of every stage.
ActionList add_transfers_of(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds, int64_t stage);

}  // namespace ashlar::pipeline
