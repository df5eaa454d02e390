#pragma once

#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Compute actions of a stage without a transfer between them.
using Round = std::vector<Action>;

/// Inserts the transfers between the rounds of all stages, [stages] lists in execution order. Rounds are placed on a
/// common clock. Each takes one tick and begins as early as its inputs allow, and a tensor is transferred at the tick
/// at which the round that uses it begins. The list of a stage is its part of one list of all exchanges and rounds in
/// the order of the clock. The earliest unfinished entry of that list has nothing to wait for, so there is no deadlock.
/// Opposite tensors between two stages at one tick share an exchange. Throws Bug when the rounds depend on each other
/// in a cycle.
std::vector<ActionList> add_transfers(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds);
/// The list of one stage, equal to the one in add_transfers. Only the clock needs the rounds of all stages.
ActionList add_transfers_of(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds, int64_t stage);

}  // namespace ashlar::pipeline
