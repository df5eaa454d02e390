#include <algorithm>
#include <cmath>

#include "core/base/strings.h"
#include "launch/runs/curve.h"

namespace ashlar::runs {

namespace {

/// Characters of the plot area. A cell is 2 x 4 dots in Braille, one dot otherwise.
class Cells {
 public:
  Cells(int width, int height, bool braille)
      : width_(width),
        height_(height),
        across_(braille ? 2 : 1),
        down_(braille ? 4 : 1),
        cells_(static_cast<size_t>(width * height)) {}

  void line(const std::vector<Curve::At>& points, const AxisRange& x, const AxisRange& y, char letter) {
    double last_column = 0, last_row = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const double column = x.share(points[i].x) * (width_ * across_ - 1);
      const double row = (1 - y.share(points[i].y)) * (height_ * down_ - 1);
      if (i == 0) last_column = column, last_row = row;
      const int steps =
          std::max(1, static_cast<int>(std::ceil(std::max(std::abs(column - last_column), std::abs(row - last_row)))));
      for (int k = 1; k <= steps; ++k) {
        const double part = static_cast<double>(k) / steps;
        dot(last_column + (column - last_column) * part, last_row + (row - last_row) * part, letter);
      }
      last_column = column, last_row = row;
    }
  }
  void mark(const Curve::At& p, const AxisRange& x, const AxisRange& y, char letter) {
    const auto column = std::lround(x.share(p.x) * (width_ - 1)), row = std::lround((1 - y.share(p.y)) * (height_ - 1));
    at(static_cast<int>(column), static_cast<int>(row)).mark = letter;
  }
  std::string row_text(int row) const {
    std::string text;
    for (int column = 0; column < width_; ++column) text += text_of(cells_[index(column, row)]);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  struct Cell {
    uint8_t dots = 0;
    char letter = 0, mark = 0;
  };
  size_t index(int column, int row) const { return static_cast<size_t>(row * width_ + column); }
  Cell& at(int column, int row) {
    return cells_[index(std::clamp(column, 0, width_ - 1), std::clamp(row, 0, height_ - 1))];
  }
  void dot(double column, double row, char letter) {
    const int c = static_cast<int>(std::lround(column)), r = static_cast<int>(std::lround(row));
    Cell& cell = at(c / across_, r / down_);
    cell.letter = letter;
    // Bits of the dots of U+2800, by row and column of the dot.
    constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (across_ == 2) cell.dots |= kBits[r % 4][c % 2];
  }
  std::string text_of(const Cell& cell) const {
    if (cell.mark != 0) return {cell.mark};
    if (cell.letter == 0) return " ";
    if (across_ == 1) return {cell.letter};
    const int code = 0x2800 + cell.dots;
    return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 63)),
            static_cast<char>(0x80 | (code & 63))};
  }

  int width_, height_, across_, down_;
  std::vector<Cell> cells_;
};

constexpr int kLabelWidth = 9;

/// The line below the plot: the title (at most kLabelWidth long) and tick labels. A label that would touch its
/// neighbour is left out.
std::string x_labels(const AxisRange& x, int width, const std::string& title) {
  std::string line(static_cast<size_t>(kLabelWidth + 1 + width), ' ');
  line.replace(0, title.size(), title);
  size_t free = title.size() + 1;
  for (const double tick : x.ticks) {
    const std::string text = tick_text(tick);
    const auto center = static_cast<size_t>(kLabelWidth + 1 + std::lround(x.share(tick) * (width - 1)));
    const size_t begin = center - std::min(center, text.size() / 2);
    if (begin < free || begin + text.size() > line.size()) continue;
    line.replace(begin, text.size(), text);
    free = begin + text.size() + 1;
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string draw_in_terminal(const std::vector<Curve>& curves, const TerminalPlot& plot) {
  const bool many = curves.size() > 1, braille = !many && !plot.ascii;
  const int legend = many ? static_cast<int>(curves.size()) : 1;
  const int width = plot.width - kLabelWidth - 2, height = std::max(5, plot.height - 2 - legend);
  const AxisRange x = x_range(curves, 6), y = y_range(curves, height / 3, plot.log);
  Cells cells(width, height, braille);
  const auto letter = [&](size_t i) { return many ? static_cast<char>('a' + i % 26) : '*'; };
  const auto mark = [&](size_t i) { return many ? static_cast<char>('A' + i % 26) : 'o'; };
  for (size_t i = 0; i < curves.size(); ++i) cells.line(curves[i].line, x, y, letter(i));
  for (size_t i = 0; i < curves.size(); ++i)
    for (const Curve::At& p : curves[i].marks) cells.mark(p, x, y, mark(i));
  std::string text;
  for (size_t i = 0; i < curves.size(); ++i) {
    std::string line =
        many ? str_cat(std::string(1, letter(i)), " ") : str_cat(plot.y_title, plot.log ? " (log)" : "", " of ");
    line += curves[i].name;
    if (!curves[i].marks.empty()) line += str_cat(" (", std::string(1, mark(i)), ": validation)");
    if (many && i == 0) line += str_cat("   ", plot.y_title, plot.log ? " (log)" : "");
    text += line.substr(0, static_cast<size_t>(plot.width)) + "\n";
  }
  std::vector<std::string> labels(static_cast<size_t>(height));
  for (const double tick : y.ticks)
    labels[static_cast<size_t>(std::clamp<long>(std::lround((1 - y.share(tick)) * (height - 1)), 0, height - 1))] =
        tick_text(tick);
  for (int row = 0; row < height; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    text += std::string(kLabelWidth - std::min<size_t>(label.size(), kLabelWidth), ' ') + label;
    text += str_cat(label.empty() ? "|" : "+", cells.row_text(row), "\n");
  }
  text += std::string(kLabelWidth, ' ') + "+" + std::string(static_cast<size_t>(width), '-') + "\n";
  return text + x_labels(x, width, plot.x_title);
}

}  // namespace ashlar::runs
