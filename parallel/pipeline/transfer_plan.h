#pragma once

#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Compute actions of a stage without a transfer between them.
using Round = std::vector<Action>;

/// Inserts the transfers between the rounds of all stages, [stages] lists in execution order. Rounds are placed on a
/// common clock, each one tick long and as early as its inputs allow; a tensor is transferred at the tick at which the
/// round that uses it begins. Every stage's list is its part of one list of all exchanges and rounds in clock order:
/// the earliest unfinished entry has nothing to wait for, so no order of waiting can deadlock. Opposite tensors between
/// two stages at one tick share an exchange. Throws Bug when the rounds depend on each other in a cycle.
std::vector<ActionList> add_transfers(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds);
/// The list of one stage, equal to that in add_transfers: only the clock needs the rounds of every stage.
ActionList add_transfers_of(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds, int64_t stage);

}  // namespace ashlar::pipeline
