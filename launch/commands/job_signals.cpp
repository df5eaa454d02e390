#include "launch/commands/job_signals.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "launch/commands/launch_events.h"

namespace ashlar::launch {

namespace {

bool ends_the_job(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGUSR1; }

constexpr int kDiedOfIt = 128 + SIGUSR1;  // code of a rank that SIGUSR1 killed before its handler was installed
constexpr int kAborted = 1;               // exit code of mpirun itself; no rank exits with it

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? str_cat("signal ", signal) : str_cat("SIG", name);
}

void JobSignals::next(Stage stage, int signal, Clock::time_point at) {
  stage_ = stage;
  to_send_ = signal;
  send_at_ = at;
}

void JobSignals::end_mpirun(Clock::time_point now) {
  ending_since_ = now;
  next(Stage::kEnding, SIGTERM, now);
}

std::string JobSignals::handle(int signal, bool mpirun_has_it, Clock::time_point now) {
  if (!ends_the_job(signal)) {
    if (!mpirun_has_it) passed_ = signal;
    return "";
  }
  if (first_ == 0) first_ = signal, first_at_ = now;
  switch (stage_) {
    case Stage::kTraining:
      if (saves_) {
        next(Stage::kNotified, SIGUSR1, now);
        return signal == SIGUSR1 ? "" : ranks_asked_to_stop(signal);
      }
      [[fallthrough]];
    case Stage::kNotified:
      end_mpirun(now);
      if (mpirun_has_it) next(Stage::kEndingAgain, SIGTERM, now + kAgain);
      return ranks_ended(signal, saves_);
    case Stage::kEnding:
    case Stage::kEndingAgain:
    case Stage::kKilled: send_at_ = now; return "";
  }
  return "";
}

std::optional<int> JobSignals::due(Clock::time_point now) {
  if (passed_ != 0) return std::exchange(passed_, 0);
  if (to_send_ == 0 || now < send_at_) return std::nullopt;
  const int signal = to_send_;
  switch (stage_) {
    case Stage::kNotified:
      if (acknowledged_) {
        to_send_ = 0;
        return std::nullopt;
      }
      send_at_ = now + kResend;
      break;
    case Stage::kEnding: next(Stage::kEndingAgain, SIGTERM, ending_since_ + kAgain); break;
    case Stage::kEndingAgain: next(Stage::kKilled, SIGKILL, ending_since_ + kKill); break;
    case Stage::kKilled:
    case Stage::kTraining: to_send_ = 0; break;
  }
  return signal;
}

int JobSignals::wait_ms(Clock::time_point now) const {
  if (passed_ != 0) return 0;
  if (to_send_ == 0 || (stage_ == Stage::kNotified && acknowledged_)) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(send_at_ - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

int JobSignals::exit_code(int code) const {
  if (first_ == 0 || code == 0) return code;
  const bool notified = saves_ && (code == static_cast<int>(ExitCode::kSigusr1) || code == kDiedOfIt);
  const bool by_the_signal = notified || code == kAborted || stage_ != Stage::kNotified || !acknowledged_;
  if (!by_the_signal) return code;
  return static_cast<int>(first_ == SIGINT    ? ExitCode::kSigint
                          : first_ == SIGUSR1 ? ExitCode::kSigusr1
                                              : ExitCode::kSigterm);
}

}  // namespace ashlar::launch
