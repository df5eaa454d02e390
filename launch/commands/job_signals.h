#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ashlar::launch {

/// Decides how `ashlar launch` reacts to its signals: what is sent to mpirun, and when. A pure state machine: it is
/// given signals, the time and the ranks' answers, and sends nothing itself.
///   For a job that saves, the first SIGTERM, SIGINT, SIGHUP or SIGUSR1 becomes SIGUSR1 to mpirun, repeated until a
/// rank answers: mpirun loses signals that arrive before its ranks are running. Ranks started by `launch` treat a
/// repeated SIGUSR1 as one signal. A second signal, or the first to a job that saves nothing, becomes SIGTERM to
/// mpirun; if mpirun is still running after kAgain, another SIGTERM, and after kKill, SIGKILL to it and its ranks. A
/// third signal triggers the next of these at once.
class JobSignals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kResend{250}, kAgain{5000}, kKill{10000};

  explicit JobSignals(bool saves) : saves_(saves) {}

  /// Handles a signal that `launch` has received. `mpirun_has_it`: the terminal has sent the signal to mpirun too.
  /// Returns the line to print, without "ashlar: "; empty: none.
  std::string handle(int signal, bool mpirun_has_it, Clock::time_point now);
  void acknowledged() { acknowledged_ = true; }  ///< a rank has answered SIGUSR1
  /// Returns the signal to send now, if any. SIGKILL is to be sent to mpirun and its ranks. Call it until it returns
  /// nothing.
  std::optional<int> due(Clock::time_point now);
  /// Milliseconds until the next signal is due; -1: none.
  int wait_ms(Clock::time_point now) const;

  bool ending() const { return first_ != 0; }  ///< the job was asked to end
  /// Returns the exit code of the job. That is mpirun's code, or 75 to 77 if a signal ended the job (the code of the
  /// first signal). If the job exited with a code of its own before it could save, the result is that code.
  int exit_code(int code_of_mpirun) const;

 private:
  enum class Stage { kTraining, kNotified, kEnding, kEndingAgain, kKilled };
  void next(Stage stage, int signal, Clock::time_point at);

  bool saves_;
  Stage stage_ = Stage::kTraining;
  int first_ = 0;    ///< the first signal that ends the job
  int passed_ = 0;   ///< a signal to be forwarded without further action
  int to_send_ = 0;  ///< signal to send at send_at_
  Clock::time_point send_at_, ending_since_;
  bool acknowledged_ = false;
};

/// Name of a signal, e.g. "SIGTERM".
std::string signal_name(int signal);

}  // namespace ashlar::launch
