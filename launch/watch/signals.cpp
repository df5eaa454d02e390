#include "launch/watch/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace ashlar::watch {

namespace {

using namespace std::chrono_literals;

// A launcher may send one signal twice (Slurm: to the job and to its job step). Within this time the repetition is not
// a second signal; a user does not repeat a signal so quickly.
constexpr auto kSameSignal = 300ms;

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN)
    sigaddset(&set, SIGHUP);  // not under nohup, where the process must survive its terminal
  return set;
}

std::string_view name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGUSR1 ? "SIGUSR1" : signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

ExitCode code_of(int signal) {
  return signal == SIGINT ? ExitCode::kSigint : signal == SIGUSR1 ? ExitCode::kSigusr1 : ExitCode::kSigterm;
}

}  // namespace

io::LineWriter standard_error() {
  using namespace std::chrono_literals;
  constexpr size_t kMostBytes = size_t{4} << 20;  // enough for the stacks of all threads of a node
  return io::LineWriter(STDERR_FILENO, {.most_bytes = kMostBytes, .patience = 500ms, .longest = 10s});
}

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatch::~SignalWatch() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  errors_.finish();
}

void SignalWatch::watch(const Reporter& reporter) {
  ASHLAR_CHECK(!thread_.joinable(), "signals are watched already");
  reporter_ = reporter;
  sigset_t all, before;
  sigfillset(&all);  // inherited by the new thread: it receives signals only from sigtimedwait
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SignalWatch::release() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalWatch::Request SignalWatch::request_of(ExitCode code) {
  switch (code) {
    case ExitCode::kSigterm: return {"SIGTERM", code};
    case ExitCode::kSigint: return {"SIGINT", code};
    case ExitCode::kSigusr1: return {"SIGUSR1", code};
    default: throw Bug(str_cat("exit code ", static_cast<int>(code), " is not that of a signal"));
  }
}

std::optional<SignalWatch::Request> SignalWatch::pending() const {
  const ExitCode code = request_;
  if (code == ExitCode::kDone) return std::nullopt;
  return request_of(code);
}

void SignalWatch::finish(ExitCode code) {
  final_ = code;
  point_ = StopPoint::kLeft;
}

void SignalWatch::before_leaving(std::function<void()> call) {
  const std::lock_guard lock(leaving_);
  before_leaving_ = std::move(call);
}

void SignalWatch::ask_whether_over(std::function<bool()> over) {
  const std::lock_guard lock(leaving_);
  over_ = std::move(over);
}

void SignalWatch::run() {
  pthread_setname_np(pthread_self(), "signals");
  const sigset_t set = watched();
  while (!stop_) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    siginfo_t info;
    if (sigtimedwait(&set, &info, &pause) > 0) handle(info);
    if (answer_at_ && Clock::now() >= *answer_at_) {
      answer_at_.reset();
      answer();
    }
  }
}

void SignalWatch::handle(const siginfo_t& info) {
  const ExitCode code = code_of(info.si_signo);
  if (point_ == StopPoint::kLeft) leave(final_);
  const bool launcher = info.si_code != SI_KERNEL && info.si_pid == getppid() && reporter_.ranks > 1;
  const Clock::time_point now = Clock::now();
  if (request_ != ExitCode::kDone) {
    if (launcher && reporter_.resent && info.si_signo == SIGUSR1) return;
    if (launcher && info.si_signo == first_signal_ && now - first_ < kSameSignal) return;
    if (reports_) say(str_cat(name_of(info.si_signo), ": exiting at once; steps since the last checkpoint are lost"));
    leave(code);
  }
  first_ = now;
  first_signal_ = info.si_signo;
  reports_ = reporter_.rank == 0 || !launcher;
  request_ = code;
  answer_at_ = now + (launcher ? reporter_.patience : 0ms);
}

void SignalWatch::answer() {
  const Request request{name_of(first_signal_), request_};
  const StopPoint point = point_;
  constexpr const char* kSecond = "; a second signal exits at once";
  switch (point) {
    case StopPoint::kStarting:
      if (reports_) say(str_cat(request.name, ": nothing to save before the first step; exiting"));
      leave(request.code);
    case StopPoint::kLeft: return;
    default: break;
  }
  if (!reports_) return;
  {
    const std::lock_guard lock(leaving_);
    if (over_ && over_()) return;
  }
  const char* what = point == StopPoint::kStep         ? "stopping after this step, then saving"
                     : point == StopPoint::kValidation ? "stopping after this batch of the validation, then saving"
                                                       : "stopping when this checkpoint is saved";
  say(str_cat(request.name, ": ", what, kSecond));
}

void SignalWatch::say(std::string_view what) {
  const std::string who =
      reporter_.rank == 0 ? ""
                          : str_cat("[rank ", reporter_.rank, " of ", reporter_.ranks, " on ", reporter_.host, "] ");
  errors_.add(str_cat(reporter_.erase, "ashlar: ", who, what, "\n"), LineKind::kWarning);
}

void SignalWatch::leave(ExitCode code) {
  {
    const std::lock_guard lock(leaving_);
    if (before_leaving_) before_leaving_();
  }
  errors_.finish();
  _exit(static_cast<int>(code));
}

}  // namespace ashlar::watch
