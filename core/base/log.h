#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// Which lines are dropped first when their reader falls behind: step lines first, warnings last.
enum class LineKind : uint8_t { kStep, kInfo, kWarning };

/// Where information and warnings go. Owned by main and handed down; one object a process, passed, never global.
/// Lines are written whole, each text on one line whatever is in it (on_one_line). `once` prints a text the first time
/// only (capability notices).
class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;
  using KindSink = std::function<void(std::string_view line, LineKind kind)>;

  explicit Log(KindSink sink) : sink_(std::move(sink)) {}
  explicit Log(Sink sink) : sink_([sink = std::move(sink)](std::string_view line, LineKind) { sink(line); }) {}

  void info(std::string_view text);
  void step(std::string_view text);  ///< how a run gets on: one of many such lines
  void warn(std::string_view text);  ///< prefixed `warning: `; kept, so that tests and reports can see it
  void info_once(std::string_view text);

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  KindSink sink_;
  std::vector<std::string> warnings_;
  std::vector<std::string> said_once_;
};

}  // namespace ashlar
