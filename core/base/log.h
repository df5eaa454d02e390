#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// Where information and warnings go. Owned by main and handed down; one object a process, passed, never global.
/// Lines are written whole, each text on one line whatever is in it (on_one_line). `once` prints a text the first time
/// only (capability notices).
class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;

  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void info(std::string_view text);
  void warn(std::string_view text);  ///< prefixed `warning: `; kept, so that tests and reports can see it
  void info_once(std::string_view text);

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Sink sink_;
  std::vector<std::string> warnings_;
  std::vector<std::string> said_once_;
};

}  // namespace ashlar
