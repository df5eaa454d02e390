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

/// State of another rank of this node, or of a previous node, as seen by this rank.
enum class PeerState {
  kUnknown,   ///< nothing known yet
  kAlive,     ///< also this rank itself
  kFinished,  ///< finished
  kLeaving,   ///< has just failed and prints its error; all ranks may be about to fail
  kGone,      ///< has failed and printed its error
  kLost,      ///< has died or fallen silent without an error
};
struct NodeView {
  PeerState state = PeerState::kUnknown;
  int64_t ranks = 1;
};
struct Verdict {
  bool leave = false;                 ///< the job cannot continue
  bool wait = false;                  ///< wait: another rank is about to report
  std::optional<size_t> report;       ///< the lost rank of this node that this rank must report
  std::optional<size_t> report_node;  ///< the lost node that this rank must report
  int64_t lost = 0;                   ///< number of lost ranks known to this rank
};
/// A lost rank is reported by the lowest remaining rank of its node, which knows it at once and for certain; a lost
/// node by the lowest rank of the next node. A rank that has printed its failure needs no report. The others wait until
/// the report is printed: when one rank exits, mpirun kills the rest. `ranks` are those of this node, including `self`;
/// `before` the previous nodes, nearest first.
Verdict judge(std::span<const PeerState> ranks, std::span<const NodeView> before, size_t self);

/// Timeouts. Those for silence apply to other nodes, whose processes cannot be checked.
struct WatchTimes {
  std::chrono::milliseconds beat{100};           ///< polling interval
  std::chrono::milliseconds silence{5000};       ///< a node silent for this long is lost
  std::chrono::milliseconds short_silence{600};  ///< while SIGTERM waits: mpirun kills about a second after it
  std::chrono::milliseconds error_wait{2000};    ///< wait for an error that several ranks may be about to print
  std::chrono::milliseconds linger{200};         ///< wait after a report: mpirun drops unread output
  std::chrono::milliseconds gather{5000};        ///< in a hang, wait for reports of other nodes
  std::chrono::milliseconds hurry{10};           ///< polling interval while nodes exchange pages
};

/// A thread that sends this rank's heartbeat and watches the other ranks; it never calls MPI. When a rank is lost or
/// gone, the process ends with code 5 (kPeerLost), since its main thread may wait for that rank forever. One rank
/// prints on standard error which rank was lost, where, at what step, in what operation. Ranks that finish, are stopped
/// by a debugger or are asked to stop cause no report; hangs are handled by HangDetector. Destroy it before the
/// recorder.
///   It reads the pages of its node's ranks. It checks the processes of a few of them through open files of /proc: the
/// ranks at distances 1, 2, 4, ... behind it. The lowest rank with a heartbeat leads, which means that it represents
/// the node in the ring.
class Watchdog {
 public:
  struct Args {
    FlightRecorder& recorder;
    const SignalWatch& signals;
    NodePages& pages;  ///< in order of ranks, including the recorder's
    NodeRing* ring;    ///< null for one node
    int32_t node = 0;  ///< this node's index in the ring
    HangOptions hang;
    WatchTimes times;
    std::span<const NodeRanks> nodes;  ///< all nodes, ordered by their lowest ranks; empty for one node
  };
  explicit Watchdog(const Args& args);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// Starts the detection of hangs with these options.
  void watch_hangs(const HangOptions& options);
  /// Sets the action that aborts this rank's device work. When the watchdog ends the process, it first calls the action
  /// on a separate thread and gives it two seconds. The action must not throw.
  void before_end(std::function<void()> action);
  /// For a rank whose communication has failed. Waits until the watchdog finds the lost rank that caused the failure;
  /// the watchdog then ends the process. Returns if no rank is lost.
  void find_lost();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    int stat = -1;  ///< open /proc/PID/stat of ranks that this rank checks
    bool opened = false, dead = false;
    Clock::time_point failed;
  };
  struct Neighbour {
    Clock::time_point failed;
    int64_t missed_ms = 0;  ///< time in which this rank could not receive
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
  Clock::time_point looked_, left_;  ///< left_: when leaving was first decided
  io::LineWriter errors_ = standard_error();
  std::unique_ptr<HangDetector> hang_;  ///< constructed and used by the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  HangOptions hang_options_;
  std::function<void()> before_end_;
  bool stop_ = false;
  bool failing_ = false;  ///< an exception passes through the destructor
  std::thread thread_;
};

}  // namespace ashlar::watch
