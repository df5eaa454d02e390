#pragma once

#include <array>
#include <csignal>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// While it exists, SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT print one line with the rank, its step and its last
/// operation before they end the process as usual, including the core file. Replaces MPI's handlers, so construct it
/// after MPI has started, on the main thread. The main thread also reports for other threads, so a core file shows the
/// thread that crashed as waiting.
class FatalSignals {
 public:
  /// `page` outlives it; a crash is marked there so that other ranks do not report it again.
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
