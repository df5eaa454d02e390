#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "launch/training/clock.h"

namespace ashlar::launch {

using training::now_sec;

inline double now_ms() { return 1e3 * now_sec(); }

/// The quantile `share` in [0, 1) of at least one value: the nearest of the values, without interpolation.
inline double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

/// The lower quartile of the times of repeated calls: at least eight calls in about `budget` seconds, after two warm-up
/// calls. The lower quartile, because disturbances of a shared machine can only make a call slower.
template <typename Call>
double quartile_seconds(double budget, const Call& call) {
  call();
  call();
  std::vector<double> times;
  const double begin = now_sec();
  while (times.size() < 8 || now_sec() - begin < budget) {
    const double start = now_sec();
    call();
    times.push_back(now_sec() - start);
  }
  return quantile(std::move(times), 0.25);
}

}  // namespace ashlar::launch
