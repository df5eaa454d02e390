#include "launch/training/signals.h"

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace ashlar::training {

namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
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
  const sigset_t set = watched();
  const timespec now{};
  switch (sigtimedwait(&set, nullptr, &now)) {
    case SIGTERM: return request_of(ExitCode::kSigterm);
    case SIGINT: return request_of(ExitCode::kSigint);
    case SIGUSR1: return request_of(ExitCode::kSigusr1);
    default: return std::nullopt;
  }
}

void SignalWatch::release() const {
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace ashlar::training
