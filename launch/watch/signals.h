#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/error.h"
#include "core/io/line_writer.h"

namespace ashlar::watch {

/// Standard error for the watch threads. A write never waits for a reader, except for at most half a second just before
/// the process ends.
io::LineWriter standard_error();

/// Activity of the run when a stop is requested; it decides how the run stops.
enum class StopPoint : uint8_t {
  kStarting,    ///< nothing to save yet: the process exits
  kStep,        ///< the run stops after this step, then saves
  kValidation,  ///< after this batch of a validation, whose loss is not written, then saves
  kSave,        ///< once this checkpoint is saved
  kLeft,        ///< the run is over and has its exit code
};

/// Handles SIGTERM, SIGINT, SIGUSR1, and SIGHUP (as SIGTERM) if it is not ignored. They are blocked in the whole
/// process, so nothing runs in a signal handler and a save is never interrupted. A thread receives them and prints on
/// standard error within a second what will happen; the run polls for the request between steps. A second signal ends
/// the process at once with that signal's code, in any state, even if nobody reads standard error.
class SignalWatch {
 public:
  /// Identity of this rank, which decides whether it reports a signal. A signal of the launcher reaches all ranks, and
  /// rank 0 reports it; a signal that reaches only one rank is reported by that rank.
  struct Reporter {
    int64_t rank = 0, ranks = 1;
    std::string host;
    /// A launcher also sends SIGTERM after losing a rank. This is the time that the watchdog has to report the loss
    /// first.
    std::chrono::milliseconds patience{0};
    /// `ashlar launch` repeats SIGUSR1 until the ranks report it: a repeated one does not count as a second signal.
    bool resent = false;
  };
  struct Request {
    std::string_view name;  ///< "SIGTERM"
    ExitCode code;
  };

  /// Blocks the signals for this thread and its children: construct before any other thread exists.
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Starts the thread.
  void watch(const Reporter& reporter);
  /// Restores the default action of the signals: each ends the process at once.
  void release();

  static Request request_of(ExitCode code);  ///< for one of the three codes
  /// Returns the first signal received, or nullopt. Never blocks; thread-safe.
  std::optional<Request> pending() const;

  void enter(StopPoint point) { point_ = point; }
  StopPoint point() const { return point_; }
  /// Records that the run is over and will exit with `code`. From now on a signal ends the process silently with that
  /// code.
  void finish(ExitCode code);
  /// Called on the thread before it ends the process; may be null.
  void before_leaving(std::function<void()> call);
  /// Called on the thread before it reports a signal: returns true if the job is over and the launcher uses the signal
  /// to end it; may be null.
  void ask_whether_over(std::function<bool()> over);

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void handle(const siginfo_t& info);
  void say(std::string_view what);
  void answer();
  [[noreturn]] void leave(ExitCode code);

  Reporter reporter_;
  std::atomic<StopPoint> point_ = StopPoint::kStarting;
  std::atomic<ExitCode> request_ = ExitCode::kDone, final_ = ExitCode::kDone;
  std::mutex leaving_;
  std::function<void()> before_leaving_;
  std::function<bool()> over_;
  // Used by the thread:
  std::optional<Clock::time_point> answer_at_;
  Clock::time_point first_;
  int first_signal_ = 0;
  bool reports_ = false;  ///< this rank reports signals
  io::LineWriter errors_ = standard_error();

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace ashlar::watch
