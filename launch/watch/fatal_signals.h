#pragma once

#include <array>
#include <csignal>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// While an object of this class exists, SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT print one line with the rank, its
/// step and its last operation before they end the process as usual, including the core file. The object replaces MPI's
/// signal handlers, so construct it after MPI has started, on the main thread. A thread that crashes passes its signal
/// to the main thread, which prints the line. In the core file the crashed thread is therefore seen waiting in pause().
class FatalSignals {
 public:
  /// `page`: the state of this rank, in memory that other ranks read; it must outlive this object. A crash sets the
  /// state to kCrashed, so that no other rank reports the crash again.
  explicit FatalSignals(RankPage& page);
  FatalSignals(const FatalSignals&) = delete;
  FatalSignals& operator=(const FatalSignals&) = delete;
  ~FatalSignals();

 private:
  static constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  void* stack_ = nullptr;
  stack_t stack_before_{};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace ashlar::watch
