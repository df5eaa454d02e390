#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// Kind of a line. If the reader falls behind, step lines are dropped first and warnings last.
enum class LineKind : uint8_t { kStep, kInfo, kWarning };

/// Output of information and warnings. Owned by main and passed down; one object per process, never global. Each text
/// is written whole on one line (on_one_line). `once` prints a text only the first time (capability notices).
class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;
  using KindSink = std::function<void(std::string_view line, LineKind kind)>;

  explicit Log(KindSink sink) : sink_(std::move(sink)) {}
  explicit Log(Sink sink) : sink_([sink = std::move(sink)](std::string_view line, LineKind) { sink(line); }) {}

  void info(std::string_view text);
  void step(std::string_view text);  ///< a progress line
  void warn(std::string_view text);  ///< prefixed `warning: `; stored for tests and reports
  void info_once(std::string_view text);

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  KindSink sink_;
  std::vector<std::string> warnings_;
  std::vector<std::string> logged_once_;
};

}  // namespace ashlar
