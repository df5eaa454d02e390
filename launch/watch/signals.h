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

/// Standard error as the threads of the watch write to it: they wait at most half a second for a reader who takes
/// nothing, and only when the process ends after that.
io::LineWriter standard_error();

/// What a request to stop finds the run at, and so what becomes of it.
enum class StopPoint : uint8_t {
  kStarting,    ///< nothing to save yet: the process leaves
  kStep,        ///< the run stops after this step, then saves
  kValidation,  ///< after this batch of a validation, whose loss is not written, then saves
  kSave,        ///< once this checkpoint is saved
  kLeft,        ///< the run is over and has its exit code
};

/// SIGTERM, SIGINT and SIGUSR1, and SIGHUP, which counts as SIGTERM, where it is not ignored. They are blocked for the
/// whole process, so that nothing ever runs in a signal handler and a save is never cut in half. A thread takes them:
/// it answers on standard error within a second what will happen; the run asks for the request between steps. A second
/// signal ends the process at once, with that signal's code, from anywhere, whether anybody reads standard error or
/// not.
class SignalWatch {
 public:
  /// Who answers. A signal that the launcher sent has reached all ranks, and rank 0 answers for them; one that reached
  /// this rank alone is answered here.
  struct Speaker {
    int64_t rank = 0, ranks = 1;
    std::string host;
    /// A launcher also sends SIGTERM when it has lost a rank: the watch that names it goes first.
    std::chrono::milliseconds patience{0};
    /// The launcher sends SIGUSR1 again until it is answered (`ashlar launch`): a repeated one is no second signal.
    bool resent = false;
  };
  struct Request {
    std::string_view name;  ///< "SIGTERM"
    ExitCode code;
  };

  /// Blocks the signals for this thread and those it starts: construct before any other thread exists.
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Starts the thread.
  void watch(const Speaker& speaker);
  /// Gives the signals back their default action instead: one ends the process at once.
  void release();

  static Request request_of(ExitCode code);  ///< of one of the three codes
  /// The first signal that came, or nothing. Never waits; for any thread.
  std::optional<Request> pending() const;

  void enter(StopPoint point) { point_ = point; }
  StopPoint point() const { return point_; }
  /// The run ends with `code`: a signal that still comes ends the process with it, without a word.
  void finish(ExitCode code);
  /// Called, on the thread, before it ends the process; null: nothing.
  void before_leaving(std::function<void()> call);
  /// Asked, on the thread, before it answers: true when the job is over anyway, and the signal is the launcher's way to
  /// end it; null: never.
  void ask_whether_over(std::function<bool()> over);

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void take(const siginfo_t& info);
  void say(std::string_view what);
  void answer();
  [[noreturn]] void leave(ExitCode code);

  Speaker speaker_;
  std::atomic<StopPoint> point_ = StopPoint::kStarting;
  std::atomic<ExitCode> request_ = ExitCode::kDone, final_ = ExitCode::kDone;
  std::mutex leaving_;
  std::function<void()> before_leaving_;
  std::function<bool()> over_;
  // The thread's:
  std::optional<Clock::time_point> answer_at_;
  Clock::time_point first_;
  int first_signal_ = 0;
  bool speaks_ = false;  ///< this rank answers
  io::LineWriter errors_ = standard_error();

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace ashlar::watch
