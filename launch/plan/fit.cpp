#include "launch/plan/fit.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::plan {

namespace {

struct FitLine {
  double slope_x = 0, slope_y = 0;
};
/// Sums for the least squares of sum (a x + b y - 1)^2 over a, b >= 0.
struct Sums {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  void add(double sample_x, double sample_y) {
    xx += sample_x * sample_x;
    xy += sample_x * sample_y;
    yy += sample_y * sample_y;
    x += sample_x;
    y += sample_y;
  }
  FitLine solve() const {
    const double determinant = xx * yy - xy * xy;
    ASHLAR_CHECK(xx > 0 && yy > 0, "samples without size");
    if (determinant <= 1e-12 * xx * yy) return {x / xx, 0};
    const FitLine line{(x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant};
    if (line.slope_y < 0) return {x / xx, 0};
    if (line.slope_x <= 0) return {x / xx, 0};
    return line;
  }
};

}  // namespace

void fit_products(std::span<const ProductSample> samples, DtypeRates& rates) {
  Sums sums;
  for (const ProductSample& s : samples) sums.add(s.flops / s.seconds, s.flops / s.terms / s.seconds);
  const FitLine line = sums.solve();
  rates.sustained = 1 / line.slope_x;
  rates.half_terms = line.slope_y / line.slope_x;
}

Link fastest_link(std::span<const LinkSample> samples) {
  ASHLAR_CHECK(!samples.empty());
  Link link{.bandwidth = 0, .latency = samples[0].seconds / samples[0].latencies};
  for (const LinkSample& s : samples) {
    link.bandwidth = std::max(link.bandwidth, s.bytes / s.seconds);
    link.latency = std::min(link.latency, s.seconds / s.latencies);
  }
  return link;
}

}  // namespace ashlar::plan
