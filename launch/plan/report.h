#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/plan/planner.h"

/// A plan as text and as JSON.
namespace ashlar::plan {

/// "plan: memory 1.23 GB of 4.00 GB, rank 0 needs most = weights 12.3 MB + ...": one line.
std::string memory_line(const Planned& planned, const Target& target);
/// "plan: a step takes 1.23 s (1.05 to 1.41), 10000 steps 3.4 hours": one line; says why if there is no time.
std::string time_line(const Planned& planned, const Target& target);

/// The whole plan, a line an entry. `price`: of one rank for an hour; 0: no line about the cost.
std::vector<std::string> report(const Planned& planned, const Target& target, double price);
/// The plan as the object that README.md describes.
nlohmann::ordered_json to_json(const Planned& planned, const Target& target, double price);

}  // namespace ashlar::plan
