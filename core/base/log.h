#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// Kind of a log line. If the output is read too slowly, step lines are dropped first and warnings last. kStatus: a
/// drawing of the last line of a terminal, which is no line of a log; the newest one replaces those before.
enum class LineKind : uint8_t { kStatus, kStep, kInfo, kWarning };

/// Writes information, progress and warnings. main owns the only object of the process and passes it to callees. Each
/// text becomes one line (on_one_line). `info_once` writes a text only the first time.
class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;
  using KindSink = std::function<void(std::string_view line, LineKind kind)>;

  explicit Log(KindSink sink) : sink_(std::move(sink)) {}
  explicit Log(Sink sink) : sink_([sink = std::move(sink)](std::string_view line, LineKind) { sink(line); }) {}

  struct Line {
    std::string text;
    std::chrono::system_clock::time_point time;
  };
  using CopySink = std::function<void(const Line& line)>;
  static constexpr size_t kKeptLines = 1000;
  /// Passes all further lines to `sink` too, and first those of before, of which the log keeps the first kKeptLines
  /// until this call. An empty `sink` ends it.
  void copy_to(CopySink sink);

  void info(std::string_view text);
  void step(std::string_view text);  ///< writes a progress line
  void warn(std::string_view text);  ///< writes a line that begins with `warning: `, and stores the text for reports
                                     ///< and tests
  void info_once(std::string_view text);

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void write(std::string text, LineKind kind);

  KindSink sink_;
  CopySink copy_;
  std::optional<std::vector<Line>> kept_ = std::vector<Line>();  ///< absent once copy_to was called
  std::vector<std::string> warnings_;
  std::vector<std::string> logged_once_;
};

}  // namespace ashlar
