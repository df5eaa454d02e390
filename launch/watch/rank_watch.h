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

/// Owns the parts that detect and report a rank that dies or hangs, in the order of their dependencies.
class RankWatch {
 public:
  /// Data that the ranks of a job exchange at the start.
  struct Rendezvous {
    RankInfo info;
    RingPlan plan;
    std::unique_ptr<NodePages> pages;        ///< memory that the ranks of this node share
    std::unique_ptr<NodeListener> listener;  ///< null if the job has one node
    RingSecret secret;                       ///< key that authenticates the heartbeats
    std::vector<RingNode> next;
    std::vector<NodeRanks> nodes;  ///< all nodes, ordered by their lowest ranks; empty if the job has one node
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

/// Starts the watch over the ranks. Called by all ranks, on the main thread. Destroy the result before the
/// communicators. If an exception destroys the result, the other ranks see this rank as failed; main prints the error.
std::unique_ptr<RankWatch> watch_ranks(comm::ControlPlane& ranks, SignalWatch& signals, HangOptions hang = {});

/// Runs work(). MPI does not report which peer was lost. So if work() fails because of a lost peer, this waits for the
/// watch, which reports the peer and ends the process. If the watch finds no lost peer in time, the error is rethrown.
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
