#pragma once

#include <optional>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::training {

/// Requests to stop: SIGTERM, SIGINT and SIGUSR1 are blocked for the whole process and asked for between micro-batches,
/// so that nothing ever runs in a signal handler and a save is never cut in half.
class SignalWatch {
 public:
  /// Blocks the three signals for this thread and those it starts: construct before any other thread exists.
  SignalWatch();

  struct Request {
    std::string_view name;  ///< "SIGTERM"
    ExitCode code;
  };
  static Request request_of(ExitCode code);  ///< of one of the three codes
  /// A signal that has arrived since the last call, or nothing. Never waits.
  std::optional<Request> pending() const;
  /// Gives the signals back their default action: a second one then ends the process at once.
  void release() const;
};

}  // namespace ashlar::training
