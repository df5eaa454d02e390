#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ashlar::launch {

/// What `ashlar launch` makes of the signals that it gets: what mpirun is sent, and when. Pure: it is told of signals,
/// of the time and of what the ranks have said, and sends nothing itself.
///   The first SIGTERM, SIGINT, SIGHUP or SIGUSR1 to a job that saves is SIGUSR1 to mpirun, sent again until a rank has
/// answered: mpirun loses what comes before its ranks are there. Ranks that `launch` started take a repeated SIGUSR1
/// for the same one. A second signal, and the first to a job that saves nothing, is SIGTERM to mpirun; when mpirun is
/// still there after kAgain, SIGTERM once more, and after kKill, SIGKILL to it and to its ranks. A third signal does at
/// once what would be next.
class JobSignals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kResend{250}, kAgain{5000}, kKill{10000};

  explicit JobSignals(bool saves) : saves_(saves) {}

  /// A signal that `launch` has got. `mpirun_has_it`: the terminal has sent it to mpirun, too. Returns what is to be
  /// said of it, without "ashlar: "; empty: nothing.
  std::string take(int signal, bool mpirun_has_it, Clock::time_point now);
  void acknowledged() { acknowledged_ = true; }  ///< a rank has answered to SIGUSR1
  /// What is to be sent now; SIGKILL is for mpirun and its ranks. Ask again until there is nothing.
  std::optional<int> due(Clock::time_point now);
  /// Milliseconds until something is due; -1: nothing will be.
  int wait_ms(Clock::time_point now) const;

  bool ending() const { return first_ != 0; }  ///< the job was told to end
  /// Exit code of the job: that of mpirun, or of the first signal where the job ended by it: 75 to 77. A job that ended
  /// with a code of its own before it could save keeps it.
  int exit_code(int code_of_mpirun) const;

 private:
  enum class Stage { kTraining, kTold, kEnding, kEndingAgain, kKilled };
  void next(Stage stage, int signal, Clock::time_point at);

  bool saves_;
  Stage stage_ = Stage::kTraining;
  int first_ = 0;    ///< the first signal that ends the job
  int passed_ = 0;   ///< a signal that only passes, to be sent
  int to_send_ = 0;  ///< at send_at_
  Clock::time_point send_at_, ending_since_;
  bool acknowledged_ = false;
};

/// "SIGTERM".
std::string signal_name(int signal);

}  // namespace ashlar::launch
