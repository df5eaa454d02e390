#pragma once

#include <memory>

#include "core/base/log.h"
#include "launch/training/rank_watch.h"
#include "launch/training/signals.h"
#include "launch/world.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// What every command works with.
struct Session {
  training::SignalWatch& signals;
  comm::Bootstrap& bootstrap;
  Log& log;
  Cores cores;                                 ///< of this rank
  std::unique_ptr<training::RankWatch> watch;  ///< of all ranks: under a launcher, and in `train`
};

}  // namespace ashlar::launch
