#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/plan/planner.h"

/// A plan as text and as JSON.
namespace ashlar::plan {

/// The lines that a run logs before it starts, each of at most 100 columns: memory of the rank that needs most with its
/// largest parts, and time.
///   plan: memory 1.23 GB of 4.00 GB, rank 0: activations kept 1.1 GB, weights 12.3 MB, main gradients 24.6 MB, ...
///   plan: a step takes 1.23 s (1.05 s to 1.41 s); 10000 steps 3.42 hours (2.92 hours to 3.92 hours)
std::vector<std::string> start_lines(const Planned& planned, const Target& target);

/// The whole plan, a line an entry. `price`: of one rank for an hour; 0: no line about the cost.
std::vector<std::string> report(const Planned& planned, const Target& target, double price);
/// The plan as the object that README.md describes.
nlohmann::ordered_json to_json(const Planned& planned, const Target& target, double price);

}  // namespace ashlar::plan
