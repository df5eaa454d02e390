#include "launch/runs/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"

namespace ashlar::runs {

namespace {

struct Moments {
  double mean = 0, variance = 0, count = 0;
};

Moments moments_of(std::span<const double> values) {
  Moments m{.count = static_cast<double>(values.size())};
  for (const double v : values) m.mean += v / m.count;
  for (const double v : values) m.variance += (v - m.mean) * (v - m.mean) / (m.count - 1);
  return m;
}

/// The integral of cos(angle)^(freedom - 1) from 0 to `angle`, by Simpson's rule. With t = sqrt(freedom) tan(angle),
/// Student's density becomes this function.
double cosine_integral(double angle, double freedom) {
  constexpr int kIntervals = 2000;
  const double h = angle / kIntervals;
  double sum = 0;
  for (int i = 0; i <= kIntervals; ++i) {
    const double weight = i == 0 || i == kIntervals ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::max(std::cos(i * h), 0.0), freedom - 1);
  }
  return sum * h / 3;
}

}  // namespace

double student_t(double probability, double freedom) {
  ASHLAR_CHECK(freedom >= 1 && probability > 0 && probability < 1, "freedom ", freedom, ", probability ", probability);
  const double right_angle = std::acos(0.0), whole = cosine_integral(right_angle, freedom);
  double low = 0, high = right_angle;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (cosine_integral(middle, freedom) < probability * whole ? low : high) = middle;
  }
  return std::sqrt(freedom) * std::tan(low);
}

Difference paired_difference(std::span<const double> a, std::span<const double> b) {
  ASHLAR_CHECK(a.size() == b.size() && !a.empty(), a.size(), " and ", b.size());
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(b[i] - a[i]);
  const Moments m = moments_of(differences);
  Difference d{.mean = m.mean, .interval = std::nullopt, .paired = true};
  if (m.count >= 2) {
    const double half = student_t(0.95, m.count - 1) * std::sqrt(m.variance / m.count);
    d.interval = {m.mean - half, m.mean + half};
  }
  return d;
}

Difference independent_difference(std::span<const double> a, std::span<const double> b) {
  ASHLAR_CHECK(!a.empty() && !b.empty(), a.size(), " and ", b.size());
  const Moments x = moments_of(a), y = moments_of(b);
  Difference d{.mean = y.mean - x.mean, .interval = std::nullopt};
  if (x.count < 2 || y.count < 2) return d;
  const double u = x.variance / x.count, v = y.variance / y.count;
  const double squares = u * u / (x.count - 1) + v * v / (y.count - 1);
  // Without any variance the number of degrees of freedom is undefined, and the interval is a point.
  const double freedom = squares > 0 ? std::max(1.0, (u + v) * (u + v) / squares) : 1;
  const double half = u + v > 0 ? student_t(0.95, freedom) * std::sqrt(u + v) : 0;
  d.interval = {d.mean - half, d.mean + half};
  return d;
}

}  // namespace ashlar::runs
