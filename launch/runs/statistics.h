#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace ashlar::runs {

/// Returns the t for which a variable with Student's distribution of `freedom` (at least 1, need not be whole) degrees
/// of freedom is within [-t, t] with the given probability.
double student_t(double probability, double freedom);

/// The mean of b minus the mean of a, with its 95% interval where there are samples enough for one.
struct Difference {
  double mean = 0;
  std::optional<std::pair<double, double>> interval;
  bool paired = false;
};
/// a[i] and b[i] share a seed, and so their initial weights and data: the interval of the mean of b[i] - a[i].
Difference paired_difference(std::span<const double> a, std::span<const double> b);
/// Independent samples: Welch's interval, which does not assume equal variances.
Difference independent_difference(std::span<const double> a, std::span<const double> b);

}  // namespace ashlar::runs
