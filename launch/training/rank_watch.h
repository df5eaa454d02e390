#pragma once

#include <filesystem>
#include <memory>

#include "core/base/error.h"
#include "launch/training/fatal_signals.h"
#include "launch/training/peer_watch.h"
#include "launch/training/rank_board.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Everything that names a rank which dies, in the order that its parts need.
struct RankWatch {
  RankWatch(const std::filesystem::path& run_dir, const RankInfo& info, comm::ControlPlane& world,
            SignalWatch& signal_watch);
  ~RankWatch();

  SignalWatch& signals;
  RankBoard board;
  FatalSignals fatal{board.page()};
  PeerWatch peers{board, signals};
};

/// Called by all ranks, on the main thread, when the run's directory stands; null where there is one rank. Destroy it
/// before the communicators; what throws through its scope is taken for an error that main reports.
std::unique_ptr<RankWatch> watch_ranks(const std::filesystem::path& run_dir, comm::ControlPlane& world,
                                       SignalWatch& signals);

/// work(). When that fails because a peer is gone, the watch first names which one and ends the process: MPI only knows
/// that somebody is. `watch` may be null.
template <typename Work>
auto naming_the_lost(RankWatch* watch, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kPeerLost && watch != nullptr) watch->peers.find_lost();
    throw;
  }
}

}  // namespace ashlar::training
