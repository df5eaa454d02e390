#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "launch/training/clock.h"

namespace ashlar::launch {

using training::now_sec;

inline double now_ms() { return 1e3 * now_sec(); }

/// Returns the quantile `share`, in [0, 1), of the values. The result is one of the values; nothing is interpolated.
/// Requires at least one value.
inline double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

/// Returns the lower quartile of the times of repeated calls, in seconds: at least eight calls in about `budget`
/// seconds, after two warm-up calls. The lower quartile is more stable than the median, because other load on the
/// machine only makes calls slower.
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
