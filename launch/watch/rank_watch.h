#pragma once

#include <memory>
#include <optional>

#include "core/base/error.h"
#include "launch/watch/fatal_signals.h"
#include "launch/watch/flight_recorder.h"
#include "launch/watch/hang_detector.h"
#include "launch/watch/node_pages.h"
#include "launch/watch/node_ring.h"
#include "launch/watch/signals.h"
#include "launch/watch/watchdog.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::watch {

/// Everything that names a rank which dies or hangs, in the order that its parts need.
class RankWatch {
 public:
  /// What the ranks of a job have told each other.
  struct Rendezvous {
    RankInfo info;
    RingPlan plan;
    std::unique_ptr<NodePages> pages;        ///< of this node
    std::unique_ptr<NodeListener> listener;  ///< null where there is one node
    RingSecret secret;                       ///< of their beats
    std::vector<RingNode> next;
    std::vector<NodeRanks> nodes;  ///< all, in order of their lowest ranks; none where there is one
    std::shared_ptr<comm::ProgressEngine> engine;
  };
  RankWatch(Rendezvous rendezvous, SignalWatch& signals, const HangOptions& hang);
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;
  ~RankWatch();

  FlightRecorder& flight_recorder() { return recorder_; }
  Watchdog& watchdog() { return *watchdog_; }

 private:
  SignalWatch& signals_;
  Rendezvous rendezvous_;
  std::optional<NodeRing> ring_;
  FlightRecorder recorder_;
  FatalSignals fatal_{recorder_.page()};
  std::optional<Watchdog> watchdog_;
};

/// Called by all ranks, on the main thread. Destroy it before the communicators; what throws through its scope is taken
/// for an error that main reports.
std::unique_ptr<RankWatch> watch_ranks(comm::ControlPlane& ranks, SignalWatch& signals, HangOptions hang = {});

/// work(). When that fails because a peer is gone, the watch first names which one and ends the process: MPI only knows
/// that somebody is.
template <typename Work>
auto naming_the_lost(RankWatch& watch, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kPeerLost) watch.watchdog().find_lost();
    throw;
  }
}

}  // namespace ashlar::watch
