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

std::optional<SignalWatch::Request> SignalWatch::pending() const {
  const sigset_t set = watched();
  const timespec now{};
  switch (sigtimedwait(&set, nullptr, &now)) {
    case SIGTERM: return Request{"SIGTERM", ExitCode::kSigterm};
    case SIGINT: return Request{"SIGINT", ExitCode::kSigint};
    case SIGUSR1: return Request{"SIGUSR1", ExitCode::kSigusr1};
    default: return std::nullopt;
  }
}

void SignalWatch::release() const {
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace ashlar::training
