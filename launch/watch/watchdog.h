#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "launch/watch/flight_recorder.h"
#include "launch/watch/hang_detector.h"
#include "launch/watch/node_pages.h"
#include "launch/watch/node_ring.h"
#include "launch/watch/process.h"
#include "launch/watch/signals.h"

namespace ashlar::watch {

/// State of a rank of this node, or of one of the previous nodes in the ring (NodeRing), as this rank sees it.
enum class PeerState {
  kUnknown,   ///< nothing known yet
  kAlive,     ///< running; also the state of this rank itself
  kFinished,  ///< ended normally
  kLeaving,   ///< has just failed and prints its error; other ranks may be about to fail too
  kGone,      ///< has failed and printed its error
  kLost,      ///< has died or fallen silent without an error
};
struct NodeView {
  PeerState state = PeerState::kUnknown;
  int64_t ranks = 1;  ///< number of ranks of the node
};
struct Verdict {
  bool leave = false;                 ///< the job cannot continue
  bool wait = false;                  ///< this rank must wait, because another rank is about to report
  std::optional<size_t> report;       ///< the lost rank of this node that this rank must report
  std::optional<size_t> report_node;  ///< the lost node that this rank must report
  int64_t lost = 0;                   ///< number of lost ranks known to this rank
};
/// Decides what this rank does about lost ranks and nodes. A lost rank is reported by the lowest remaining rank of its
/// node, because processes on the same node detect the loss at once and for certain. A lost node is reported by the
/// lowest rank of the next node. A rank that has printed its own error is not reported again. The other ranks wait
/// until the report is printed, because mpirun kills all ranks when one exits. `ranks`: the states of this node's
/// ranks, including `self`; `before`: the previous nodes, nearest first.
Verdict judge(std::span<const PeerState> ranks, std::span<const NodeView> before, size_t self);

/// Timeouts. `silence` and `short_silence` apply to other nodes, whose processes cannot be checked.
struct WatchTimes {
  std::chrono::milliseconds beat{100};           ///< polling interval
  std::chrono::milliseconds silence{5000};       ///< a node silent for this long is lost
  std::chrono::milliseconds short_silence{600};  ///< replaces `silence` after SIGTERM: mpirun soon kills the ranks
  std::chrono::milliseconds error_wait{2000};    ///< wait for errors that other ranks may be about to print
  std::chrono::milliseconds linger{200};         ///< wait after a report, because mpirun drops unread output
  std::chrono::milliseconds gather{5000};        ///< in a hang, longest wait for the reports of other nodes
  std::chrono::milliseconds hurry{10};           ///< polling interval while nodes exchange reports
};

/// A thread that publishes this rank's heartbeat and watches the other ranks; it never calls MPI. When another rank is
/// lost or gone (PeerState), this process ends with code 5 (kPeerLost), since its main thread may wait for that rank
/// forever. One rank prints on standard error which rank was lost, where, at what step and in what operation. Ranks
/// that finish, are stopped by a debugger or are asked to stop cause no report; hangs are handled by HangDetector.
/// Destroy the watchdog before the recorder.
///   The watchdog reads the states (RankPage) of all ranks of its node. It checks in /proc, through files that stay
/// open, whether processes are alive, but only for a few ranks of the node: those 1, 2, 4, ... places after its own
/// rank, cyclically. The lowest rank with a recent heartbeat leads, which means that it represents the node in the ring
/// (NodeRing).
class Watchdog {
 public:
  struct Args {
    FlightRecorder& recorder;
    const SignalWatch& signals;
    NodePages& pages;  ///< states of this node's ranks, ordered by rank, including the page of `recorder`
    NodeRing* ring;    ///< null if the job has one node
    int32_t node = 0;  ///< lowest rank of this node, which identifies it in the ring
    HangOptions hang;
    WatchTimes times;
    std::span<const NodeRanks> nodes;  ///< all nodes, ordered by their lowest ranks; empty if the job has one node
  };
  explicit Watchdog(const Args& args);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// Starts the detection of hangs with these options.
  void watch_hangs(const HangOptions& options);
  /// Sets the action that aborts this rank's device work. When the watchdog ends the process, it runs the action just
  /// before the exit, on a separate thread, and waits for it for at most two seconds. The action must not throw.
  void before_end(std::function<void()> action);
  /// Called by a rank whose communication has failed. Gives the watchdog time to find the lost rank that caused the
  /// failure; the watchdog then ends the process. Returns if the watchdog finds no lost rank in that time.
  void find_lost();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    int stat = -1;  ///< descriptor of /proc/PID/stat, if this rank checks the process
    bool opened = false, dead = false;
    Clock::time_point failed;
  };
  struct Neighbour {
    Clock::time_point failed;
    int64_t missed_ms = 0;  ///< when this rank last found that it had been stopped and may have missed heartbeats
  };
  void run();
  std::chrono::milliseconds until_next() const;
  void look();
  bool leads(int64_t now_ms) const;
  NodeStatus status(int64_t now_ms) const;
  PeerState view(size_t peer, Clock::time_point now);
  NodeView view_node(size_t index, Clock::time_point now, bool stopping);
  PeerState left(Clock::time_point& since, Clock::time_point now) const;
  bool has_died(size_t peer);
  [[noreturn]] void leave(const Verdict& verdict);
  [[noreturn]] void end();

  const Args args_;
  const std::span<RankPage> pages_;
  size_t self_ = 0;
  std::vector<Peer> peers_;
  std::vector<Neighbour> neighbours_;
  Clock::time_point looked_, left_;  ///< time of the last poll; time of the first decision to leave
  io::LineWriter errors_ = standard_error();
  std::unique_ptr<HangDetector> hang_;  ///< constructed and used by thread_

  std::mutex mutex_;
  std::condition_variable changed_;
  HangOptions hang_options_;
  std::function<void()> before_end_;
  bool stop_ = false;
  bool failing_ = false;  ///< true if an exception destroys this object
  std::thread thread_;
};

}  // namespace ashlar::watch
