#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/simulate.h"

namespace ashlar::pipeline {

/// The run as text: a line that explains the letters, then one row a stage over at most `columns` characters of time,
/// with its idle share. An action too narrow for its number shows its letter alone, one too narrow for a letter
/// nothing.
///
///   stage 0 |F0F1F2F3......B0--F4..B1--| idle 31%
std::string render(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Simulation& run,
                   int64_t columns = 160);

}  // namespace ashlar::pipeline
