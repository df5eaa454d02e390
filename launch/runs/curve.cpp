#include "launch/runs/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/nearest.h"

namespace ashlar::runs {

namespace {

double x_of(const Point& p, XAxis x) {
  return x == XAxis::kStep ? static_cast<double>(p.step) : x == XAxis::kTokens ? p.tokens : p.seconds;
}

std::vector<Curve::At> points_of(const Series& series, const CurveOptions& options, int64_t smooth) {
  std::vector<Curve::At> points;
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    sum += series[i].value;
    if (++count > smooth) {
      --count;
      sum -= series[i - static_cast<size_t>(smooth)].value;
    }
    const double y = smooth == 1 ? series[i].value : sum / static_cast<double>(count);
    if (std::isfinite(y) && (!options.log || y > 0)) points.push_back({x_of(series[i], options.x), y});
  }
  return points;
}

/// The smallest and the largest coordinate of all points.
std::pair<double, double> extent(const std::vector<Curve>& curves, double Curve::At::*coordinate) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : curves)
    for (const auto* points : {&curve.line, &curve.marks})
      for (const Curve::At& p : *points) {
        low = std::min(low, p.*coordinate);
        high = std::max(high, p.*coordinate);
      }
  return {low, high};
}

void set_linear_ticks(AxisRange& range, int ticks) {
  const double rough = (range.high - range.low) / std::max(ticks, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double steps[] = {1, 2, 5, 10};
  const double* found = std::ranges::find_if(steps, [&](double s) { return s * power >= rough * 0.999; });
  const double step = (found == std::end(steps) ? 10 : *found) * power;
  for (double k = std::ceil(range.low / step - 1e-9); k * step <= range.high + 1e-9 * step; ++k)
    range.ticks.push_back(k == 0 ? 0 : k * step);
}

void set_log_ticks(AxisRange& range, int ticks) {
  for (const auto& digits : {std::vector<double>{1}, {1, 3}, {1, 2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
    range.ticks.clear();
    for (double e = std::floor(std::log10(range.low)); std::pow(10, e) <= range.high; ++e)
      for (const double digit : digits) {
        const double v = digit * std::pow(10, e);
        if (v >= range.low && v <= range.high) range.ticks.push_back(v);
      }
    if (static_cast<int>(range.ticks.size()) >= ticks / 2) return;
  }
  range.ticks.clear();
  set_linear_ticks(range, ticks);  // less than a third of a decade
}

AxisRange range_of(std::pair<double, double> extent, int ticks, bool log) {
  AxisRange range{.low = extent.first, .high = extent.second, .ticks = {}, .log = log};
  if (range.high - range.low <= 1e-12 * std::abs(range.high)) {
    const double by = range.high == 0 ? 1 : std::abs(range.high) * 0.05;
    range.low -= by;
    range.high += by;
  }
  log ? set_log_ticks(range, ticks) : set_linear_ticks(range, ticks);
  return range;
}

}  // namespace

Curve curve_of(const RunFolder& run, const CurveOptions& options) {
  const Series& series = run.series(options.key);
  if (series.empty()) {
    std::vector<std::string> keys;
    for (const auto& [key, points] : run.metrics)
      if (!points.empty()) keys.push_back(key);
    const std::string nearest = nearest_word(options.key, keys);
    throw input_error("plot", printable(run.path.string()), " has no values of ", printable(options.key), "; ",
                      keys.empty()      ? "it has no rows yet"
                      : nearest.empty() ? str_cat("it has ", keys.size() > 30 ? "among others " : "",
                                                  comma_list(std::span(keys).first(std::min<size_t>(keys.size(), 30))))
                                        : str_cat("did you mean ", nearest, "?"));
  }
  if (options.x != XAxis::kStep && x_of(series.back(), options.x) <= 0 && series.back().step > 0)
    throw input_error("plot", printable(run.path.string()), " has no ",
                      options.x == XAxis::kTokens ? "tokens" : "step_ms", " in its metrics; use --x step");
  Curve curve{.name = run.name, .line = points_of(series, options, options.smooth), .marks = {}};
  if (options.key == "loss") curve.marks = points_of(run.series("val_loss"), options, 1);
  if (curve.line.empty() && curve.marks.empty())
    throw input_error("plot", printable(run.path.string()), ": no value of ", options.key,
                      options.log ? " is positive, as --log needs" : " is finite");
  return curve;
}

double AxisRange::share(double v) const {
  return log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
}

AxisRange x_range(const std::vector<Curve>& curves, int ticks) {
  return range_of(extent(curves, &Curve::At::x), ticks, false);
}

AxisRange y_range(const std::vector<Curve>& curves, int ticks, bool log) {
  return range_of(extent(curves, &Curve::At::y), ticks, log);
}

std::string tick_text(double v) {
  const double size = std::abs(v);
  if (v == 0) return "0";
  if (size >= 1e9) return absl::StrFormat("%.4gG", v / 1e9);
  if (size >= 1e6) return absl::StrFormat("%.4gM", v / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.4gk", v / 1e3);
  return size < 1e-3 ? absl::StrFormat("%.1e", v) : absl::StrFormat("%.4g", v);
}

std::string axis_title(XAxis x) { return x == XAxis::kStep ? "step" : x == XAxis::kTokens ? "tokens" : "seconds"; }

}  // namespace ashlar::runs
