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

/// Returns a writer to standard error for the watch threads. A write never waits for a reader. Only just before the
/// process ends, LineWriter::finish waits for a reader: up to half a second in which nothing is read, 10 s in all.
io::LineWriter standard_error();

/// Activity of the run when a stop is requested; it decides how the run stops.
enum class StopPoint : uint8_t {
  kStarting,    ///< nothing to save yet: the process exits
  kStep,        ///< the run stops after this step, then saves
  kValidation,  ///< the run stops after this batch of the validation, without a validation loss, then saves
  kSave,        ///< the run stops once this checkpoint is saved
  kLeft,        ///< the run is over and has its exit code
};

/// Handles SIGTERM, SIGINT, SIGUSR1 and, unless it is ignored (nohup), SIGHUP, which is handled as SIGTERM. These
/// signals are blocked in the whole process, so nothing runs in a signal handler and a save is never interrupted. A
/// thread receives them and prints on standard error within a second what will happen; the run polls for the request
/// between steps. A second signal ends the process at once with the exit code of that second signal, in any state, even
/// if nobody reads standard error.
class SignalWatch {
 public:
  /// Identity of this rank, which decides whether it reports a signal. A signal from the launcher reaches all ranks,
  /// and rank 0 reports it; a signal that reaches only one rank is reported by that rank.
  struct Reporter {
    int64_t rank = 0, ranks = 1;
    std::string host;
    /// How long to wait before a signal from the launcher is reported. A launcher also sends SIGTERM after losing a
    /// rank, and the watchdog must then report the loss first.
    std::chrono::milliseconds patience{0};
    /// True if the launcher is `ashlar launch`, which repeats SIGUSR1 until the ranks report it. A repeated SIGUSR1
    /// does not count as a second signal.
    bool resent = false;
    std::string_view erase = {};  ///< written before a line: erases what the run has drawn on the terminal
  };
  struct Request {
    std::string_view name;  ///< "SIGTERM"
    ExitCode code;
  };

  /// Blocks the signals for this thread and for the threads that it starts: construct before any other thread exists.
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Starts the thread that receives the signals.
  void watch(const Reporter& reporter);
  /// Restores the default action of the signals: each ends the process at once.
  void release();

  static Request request_of(ExitCode code);  ///< the request for kSigterm, kSigint or kSigusr1
  /// Returns the first signal received, or nullopt. Never blocks; thread-safe.
  std::optional<Request> pending() const;

  void enter(StopPoint point) { point_ = point; }
  StopPoint point() const { return point_; }
  /// Records that the run is over and will exit with `code`. From now on a signal ends the process silently with that
  /// code.
  void finish(ExitCode code);
  /// Sets a function that the signal thread calls before it ends the process; may be null.
  void before_leaving(std::function<void()> call);
  /// Sets a function that the signal thread calls before it reports a signal; may be null. If `over` returns true, the
  /// job is already over and the launcher sends the signal only to end the ranks; the signal is then not reported.
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
  // Used by the signal thread only:
  std::optional<Clock::time_point> answer_at_;
  Clock::time_point first_;
  int first_signal_ = 0;
  bool reports_ = false;  ///< this rank reports signals
  io::LineWriter errors_ = standard_error();

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace ashlar::watch
