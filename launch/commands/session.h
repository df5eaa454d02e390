#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>

#include "core/base/log.h"
#include "launch/cpu_threads.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "launch/world.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Shared by all commands.
struct Session {
  watch::SignalWatch& signals;
  comm::Bootstrap& bootstrap;
  Log& log;
  std::istream& in;
  std::ostream& out;  ///< standard output on rank 0; on other ranks what is written is dropped
  std::ostream& err;
  Cores cores;                              ///< cores of this rank
  std::unique_ptr<watch::RankWatch> watch;  ///< watch over all ranks: under a launcher, and in `train`
};

/// Publishes the phase of this rank, for the report of other ranks if it is lost.
inline void enter(Session& session, watch::Phase phase, int64_t number = -1) {
  if (session.watch) session.watch->flight_recorder().enter(phase, number);
}

}  // namespace ashlar::launch
