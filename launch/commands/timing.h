#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace ashlar::launch {

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
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  call();
  call();
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 8 || seconds_since(begin) < budget) {
    const auto start = Clock::now();
    call();
    times.push_back(seconds_since(start));
  }
  return quantile(std::move(times), 0.25);
}

}  // namespace ashlar::launch
