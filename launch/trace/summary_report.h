#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/trace/step_summary.h"

namespace ashlar::trace {

/// A summary as `ashlar trace` shows it. `predicted_bubble`: what `ashlar plan` predicts for the run, if it can.
std::vector<std::string> summary_lines(const StepTrace& step, const StepSummary& summary,
                                       std::optional<double> predicted_bubble);
/// The same as JSON; README.md has the fields.
nlohmann::ordered_json summary_json(const StepTrace& step, const StepSummary& summary,
                                    std::optional<double> predicted_bubble);

}  // namespace ashlar::trace
