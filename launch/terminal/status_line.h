#pragma once

#include <functional>
#include <mutex>
#include <string>

namespace ashlar::terminal {

/// What a status line shows.
struct Status {
  std::string what;   ///< what goes on: "step 12/100", "validating"
  double share = -1;  ///< how much of it is done, from 0 to 1; negative: not known, no bar
  std::string text;   ///< values
};

/// Returns a status as a text of fewer than `width` columns: the bar, the percentage, what goes on, the values. What
/// does not fit is cut, a bar that leaves no room for the texts is left out. Characters beyond ASCII become `?`.
std::string layout(const Status& status, int width);

/// The last line of a terminal, which is drawn again and again. Thread-safe.
class StatusLine {
 public:
  struct Args {
    std::function<int()> width;              ///< columns of the terminal; 0: there is none, nothing is drawn
    std::function<void(std::string)> write;  ///< writes a text that does not end with a line break
    std::function<double()> clock;           ///< seconds
  };
  static constexpr double kSeconds = 0.2;  ///< least time between two drawings

  explicit StatusLine(Args args);

  bool on() const { return on_; }
  /// Calls `make` and draws its result, unless the last drawing was less than kSeconds ago. Costs a look at the clock
  /// if nothing is drawn.
  void show(const std::function<Status()>& make);
  /// Draws, however recent the last drawing is: for work that blocks.
  void show_now(const Status& status);
  /// Returns what must be written before another text: the sequence that erases the line, or nothing if none is drawn.
  std::string take_erase();
  void clear();  ///< erases the line

 private:
  void draw(const Status& status, int width, double now);

  Args args_;
  bool on_;
  std::mutex mutex_;
  bool drawn_ = false;
  double last_ = -1e9;  ///< time of the last drawing
};

}  // namespace ashlar::terminal
