#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace ashlar::launch {

/// The value below which `share` of the values lie, one of them; there must be one at least.
inline double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

/// The lower quartile of repeated calls within about `budget` seconds, eight at least, after two that do not count: on
/// a shared machine a disturbed run can only be too slow.
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
