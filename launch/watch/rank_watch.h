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

/// The parts that detect and report a rank that dies or hangs, in the order of their dependencies.
class RankWatch {
 public:
  /// Data that the ranks of a job exchange at the start.
  struct Rendezvous {
    RankInfo info;
    RingPlan plan;
    std::unique_ptr<NodePages> pages;        ///< pages of this node
    std::unique_ptr<NodeListener> listener;  ///< null for one node
    RingSecret secret;                       ///< secret of the heartbeats
    std::vector<RingNode> next;
    std::vector<NodeRanks> nodes;  ///< all nodes, ordered by their lowest ranks; empty for one node
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

/// Called by all ranks, on the main thread. Destroy it before the communicators. An exception that passes through its
/// scope counts as an error that main reports.
std::unique_ptr<RankWatch> watch_ranks(comm::ControlPlane& ranks, SignalWatch& signals, HangOptions hang = {});

/// Runs work(). MPI only reports that some peer has failed. So if work() fails for that reason, the watch first reports
/// which peer is lost and ends the process.
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
