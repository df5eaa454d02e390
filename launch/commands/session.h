#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>

#include "core/base/log.h"
#include "launch/cpu_threads.h"
#include "launch/terminal/status_line.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "launch/world.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Context that run_command() passes to every command.
struct Session {
  watch::SignalWatch& signals;
  comm::Bootstrap& bootstrap;
  Log& log;
  terminal::StatusLine& status;  ///< draws nothing on other ranks and without a terminal
  std::istream& in;
  std::ostream& out;  ///< standard output on rank 0; a stream that drops its text on other ranks
  std::ostream& err;
  Cores cores;  ///< cores of this rank
  /// Watches all ranks. Null if mpirun did not start this process and the command is not `train`.
  std::unique_ptr<watch::RankWatch> watch;
};

/// Publishes the phase of this rank, so that other ranks can report it if this rank is lost.
inline void enter(Session& session, watch::Phase phase, int64_t number = -1) {
  if (session.watch) session.watch->flight_recorder().enter(phase, number);
}

}  // namespace ashlar::launch
