#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ashlar::launch {

/// Decides how `ashlar launch` reacts to its signals: what is sent to mpirun, and when. A pure state machine: its
/// inputs are signals, the time and the ranks' answers, and the caller sends the signals that due() returns.
///   If the job saves checkpoints (train), the first SIGTERM, SIGINT, SIGHUP or SIGUSR1 is passed to mpirun as SIGUSR1.
/// SIGUSR1 is repeated until a rank answers, because mpirun loses signals that arrive before its ranks are running;
/// ranks started by `launch` treat a repeated SIGUSR1 as one signal. If none has answered after kAnswer and the caller
/// finds none, mpirun hangs without ranks and is ended. A second signal, or the first to a job that saves nothing, is
/// passed to mpirun as SIGTERM. If mpirun is still running kAgain after that signal, it gets another SIGTERM; if it is
/// still running kKill after that signal, mpirun and its ranks get SIGKILL. Each further signal triggers the next of
/// these steps at once.
class JobSignals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kResend{250}, kAnswer{5000}, kAgain{5000}, kKill{10000};

  explicit JobSignals(bool saves) : saves_(saves) {}

  /// Handles a signal that `launch` has received. `mpirun_has_it`: the terminal has sent the signal to mpirun too.
  /// Returns the line to print, without "ashlar: "; empty: nothing to print.
  std::string handle(int signal, bool mpirun_has_it, Clock::time_point now);
  void acknowledged() { acknowledged_ = true; }  ///< a rank has answered SIGUSR1
  /// True if no rank has answered SIGUSR1 for kAnswer.
  bool unanswered(Clock::time_point now) const {
    return stage_ == Stage::kNotified && !acknowledged_ && now >= first_at_ + kAnswer;
  }
  void end_mpirun(Clock::time_point now);  ///< continues as after a second signal
  /// Returns the signal to send to mpirun now, if any. If it is SIGKILL, the caller sends it to the ranks too. Call
  /// due() until it returns nothing.
  std::optional<int> due(Clock::time_point now);
  /// Returns the milliseconds until the next signal is due; -1 if no signal is pending.
  int wait_ms(Clock::time_point now) const;

  bool ending() const { return first_ != 0; }  ///< the job was asked to end
  /// Returns the exit code of the job: mpirun's code or, if a signal ended the job, the code of the first signal (75 to
  /// 77). If the job had answered the signal but then failed with an error, the result is the code of that error.
  int exit_code(int code_of_mpirun) const;

 private:
  enum class Stage { kTraining, kNotified, kEnding, kEndingAgain, kKilled };
  void next(Stage stage, int signal, Clock::time_point at);

  bool saves_;
  Stage stage_ = Stage::kTraining;
  int first_ = 0;    ///< the first signal that ends the job
  int passed_ = 0;   ///< a signal that does not end the job, to be forwarded to mpirun; 0: none
  int to_send_ = 0;  ///< signal to send at send_at_
  Clock::time_point send_at_, first_at_, ending_since_;
  bool acknowledged_ = false;
};

/// Name of a signal, e.g. "SIGTERM".
std::string signal_name(int signal);

}  // namespace ashlar::launch
