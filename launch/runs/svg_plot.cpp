#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/runs/curve.h"

namespace ashlar::runs {

namespace {

constexpr double kWidth = 860, kHeight = 480, kLeft = 70, kRight = 20, kTop = 20, kBottom = 50;

// Colours that stay apart for colour-blind readers (Okabe and Ito), legible on white and on near-black.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#8a8a00"};

std::string xml_text(const std::string& text) {
  return absl::StrReplaceAll(escaped(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

struct SvgFrame {
  AxisRange x, y;
  double across(double v) const { return kLeft + x.share(v) * (kWidth - kLeft - kRight); }
  double down(double v) const { return kTop + (1 - y.share(v)) * (kHeight - kTop - kBottom); }
};

/// The points of a line that can be seen: of each pixel's points the lowest and the highest, in their order.
std::vector<Curve::At> visible_points(const std::vector<Curve::At>& points, const SvgFrame& frame) {
  std::vector<Curve::At> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin, low = begin, high = begin;
    while (end < points.size() && frame.across(points[end].x) < frame.across(points[begin].x) + 0.5) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
      ++end;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
    begin = end;
  }
  return kept;
}

std::string axes_text(const SvgFrame& frame, const SvgPlot& plot) {
  std::string text;
  for (const double tick : frame.y.ticks)
    text += absl::StrFormat(
        "<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\" "
        "text-anchor=\"end\">%s</text>\n",
        kLeft, frame.down(tick), kWidth - kRight, kLeft - 8, frame.down(tick) + 4, tick_text(tick));
  for (const double tick : frame.x.ticks)
    text += absl::StrFormat(
        "<path class=\"grid\" d=\"M%.1f %.0fV%.0f\"/><text x=\"%.1f\" y=\"%.0f\" "
        "text-anchor=\"middle\">%s</text>\n",
        frame.across(tick), kTop, kHeight - kBottom, frame.across(tick), kHeight - kBottom + 18, tick_text(tick));
  text += absl::StrFormat("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
                          (kLeft + kWidth - kRight) / 2, kHeight - 10, xml_text(plot.x_title));
  const std::string y_title = xml_text(plot.y_title) + (plot.log ? " (log)" : "");
  return text + absl::StrFormat("<text transform=\"translate(16 %.0f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                                (kTop + kHeight - kBottom) / 2, y_title);
}

std::string curve_text(const Curve& curve, const SvgFrame& frame, const char* colour) {
  std::string text =
      str_cat("<g stroke=\"", colour, "\" fill=\"", colour, "\"><title>", xml_text(curve.name), "</title>");
  char command = 'M';
  std::string path;
  for (const Curve::At& p : visible_points(curve.line, frame)) {
    path += absl::StrFormat("%c%.1f %.1f", command, frame.across(p.x), frame.down(p.y));
    command = 'L';
  }
  if (!path.empty()) text += str_cat("<path class=\"line\" d=\"", path, "\"/>\n");
  for (const Curve::At& p : curve.marks)
    text += absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s: validation %.4f</title></circle>\n",
                            frame.across(p.x), frame.down(p.y), xml_text(curve.name), p.y);
  return text + "</g>\n";
}

}  // namespace

std::string draw_svg(const std::vector<Curve>& curves, const SvgPlot& plot) {
  const SvgFrame frame{.x = x_range(curves, 8), .y = y_range(curves, 8, plot.log)};
  std::string text = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<style>text{fill:#222;stroke:none}.grid{stroke:#8884;fill:none}.line{fill:none;"
      "stroke-width:1.5}.page{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#181818}}</style>\n"
      "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  text += axes_text(frame, plot);
  for (size_t i = 0; i < curves.size(); ++i) text += curve_text(curves[i], frame, kColours[i % kColours.size()]);
  for (size_t i = 0; i < curves.size(); ++i) {
    const double y = kTop + 14 + 18 * static_cast<double>(i);
    const char* colour = kColours[i % kColours.size()];
    const char* marked = curves[i].marks.empty() ? "" : " (dots: validation)";
    text += absl::StrFormat(
        "<path d=\"M%.0f %.0fh18\" stroke=\"%s\" stroke-width=\"3\"/><text x=\"%.0f\" y=\"%.0f\" "
        "text-anchor=\"end\">%s%s</text>\n",
        kWidth - kRight - 24, y - 4, colour, kWidth - kRight - 30, y, xml_text(curves[i].name), marked);
  }
  return text + "</svg>\n";
}

}  // namespace ashlar::runs
