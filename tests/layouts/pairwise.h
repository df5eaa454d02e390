#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace ashlar::testing {

/// A choice on each of some axes, each value by its number.
using Row = std::vector<int>;
/// Whether a whole row makes sense.
using Allowed = std::function<bool(const Row&)>;

/// Rows in which each pair of values of two axes occurs together that any allowed row has. `sizes`: values of each
/// axis. Greedy (Cohen et al. 1997, "The AETG System"), then by annealing with fewer and fewer rows (Cohen et al. 2003,
/// "Constructing test suites for interaction testing"); the same on every machine.
std::vector<Row> pairwise_rows(std::span<const int> sizes, const Allowed& allowed);

/// What the layouts of the emulated device vary over.
struct EmulatedAxis {
  std::string_view name;
  std::vector<std::string_view> values;
};
const std::vector<EmulatedAxis>& emulated_axes();
/// At most eight ranks, each axis with room for what it divides.
bool emulated_row_allowed(const Row& row);
/// The value of an axis in a row.
std::string_view value_of(const Row& row, std::string_view axis);

}  // namespace ashlar::testing
