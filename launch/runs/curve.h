#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launch/runs/run_folder.h"

namespace ashlar::runs {

enum class XAxis : uint8_t { kStep, kTokens, kTime };
constexpr auto names_of(XAxis) { return enum_names<XAxis>("step", "tokens", "time"); }

/// A line of a plot, with points that are marked. All values are finite; x ascends.
struct Curve {
  struct At {
    double x = 0, y = 0;
  };
  std::string name;
  std::vector<At> line, marks;
};

struct CurveOptions {
  std::string key = "loss";
  XAxis x = XAxis::kStep;
  int64_t smooth = 1;  ///< each point is the mean of up to this many last points
  bool log = false;    ///< points that are not positive are left out
};

/// Makes the curve of a metric. The validation losses are marks of the key `loss`. Throws an input error if the run
/// lacks the key (the error suggests the nearest one), or if no point is left.
Curve curve_of(const RunFolder& run, const CurveOptions& options);

/// A range of a plot, with round values in it at which an axis has ticks.
struct AxisRange {
  double low = 0, high = 1;
  std::vector<double> ticks;
  bool log = false;
  double share(double v) const;  ///< 0 at `low`, 1 at `high`
};
/// The range of all values of the curves, widened a little if it is empty. `ticks`: their wanted number.
AxisRange x_range(const std::vector<Curve>& curves, int ticks);
AxisRange y_range(const std::vector<Curve>& curves, int ticks, bool log);
/// A short text such as 1.25, 20k or 3e-04.
std::string tick_text(double v);
/// "step", "tokens" or "seconds".
std::string axis_title(XAxis x);

struct TerminalPlot {
  std::string y_title, x_title;
  int width = 80, height = 22;  ///< of the whole text, in characters
  bool ascii = false;           ///< otherwise one curve is drawn with Braille patterns
  bool log = false;
};
/// Draws curves as text, each line at most `width` wide. One curve is a Braille line, or * in ASCII, with its marks as
/// o; several are the letters a, b, ..., their marks the capital letters, and a legend names them.
std::string draw_in_terminal(const std::vector<Curve>& curves, const TerminalPlot& plot);

struct SvgPlot {
  std::string y_title, x_title;
  bool log = false;
};
/// Draws curves as a standalone SVG file, for light and dark pages.
std::string draw_svg(const std::vector<Curve>& curves, const SvgPlot& plot);

}  // namespace ashlar::runs
