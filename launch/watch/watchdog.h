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

/// What a rank knows of another of its node, and of the nodes before it.
enum class PeerState {
  kUnknown,   ///< has shown nothing yet
  kAlive,     ///< this rank itself, too
  kFinished,  ///< needs nobody any more
  kLeaving,   ///< has failed a moment ago and says why itself; perhaps all ranks are about to
  kGone,      ///< has failed and said why
  kLost,      ///< has died, or fallen silent, without a word
};
struct NodeView {
  PeerState state = PeerState::kUnknown;
  int64_t ranks = 1;
};
struct Verdict {
  bool leave = false;                 ///< the job cannot continue
  bool wait = false;                  ///< not yet: another rank is about to report
  std::optional<size_t> report;       ///< the lost rank of this node that this one, and no other, reports
  std::optional<size_t> report_node;  ///< the same of a lost node
  int64_t lost = 0;                   ///< ranks, as far as this one knows
};
/// A lost rank is reported by the lowest rank left on its node, which knows for certain and at once; a lost node by the
/// lowest rank of the next one. A rank that has been said to fail needs no report. The others stay until it is out:
/// when one leaves, mpirun kills the rest. `ranks` are those of this node, `self` among them; `before` the previous
/// nodes, the nearest first.
Verdict judge(std::span<const PeerState> ranks, std::span<const NodeView> before, size_t self);

/// How long things may take; silence is for other nodes, whose processes cannot be looked at.
struct WatchTimes {
  std::chrono::milliseconds beat{100};           ///< between two looks
  std::chrono::milliseconds silence{5000};       ///< after which a node is lost
  std::chrono::milliseconds short_silence{600};  ///< while SIGTERM waits: mpirun kills about a second after it
  std::chrono::milliseconds farewell{2000};      ///< for an error that several ranks may be about to report
  std::chrono::milliseconds linger{200};         ///< of the one that reports: mpirun drops what it has not yet read
  std::chrono::milliseconds gather{5000};        ///< in a hang, for what the ranks of other nodes are at
  std::chrono::milliseconds hurry{10};           ///< between two looks while nodes wait for each other's pages
};

/// A thread that shows this rank alive and looks after the others; it never communicates with MPI. When one is lost or
/// gone, the process ends with code 5 (kPeerLost): its main thread may wait for that rank for ever. One rank says on
/// standard error which was lost, where, at what step, in what operation. Ranks that finish, are stopped by a debugger,
/// or are told to stop disturb nobody; a job in which nobody gets on is HangDetector's. Destroy it before the recorder.
///   Of the ranks of its node it reads the pages, and asks the kernel about a few: those at distances 1, 2, 4, ...
/// behind it, by files of /proc that stay open. The lowest rank that beats leads: it speaks for the node in the ring.
class Watchdog {
 public:
  struct Args {
    FlightRecorder& recorder;
    const SignalWatch& signals;
    NodePages& pages;  ///< in order of ranks; the recorder's among them
    NodeRing* ring;    ///< null where there is one node
    int32_t node = 0;  ///< in the ring
    HangOptions hang;
    WatchTimes times;
    std::span<const NodeRanks> nodes;  ///< all of the job, in order of their lowest ranks; none where there is one
  };
  explicit Watchdog(const Args& args);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// From now on hangs are seen in this way.
  void watch_hangs(const HangOptions& options);
  /// Called when the watchdog ends the process, on a thread of its own: to end what this rank has on a device. Must not
  /// throw; has two seconds.
  void before_end(std::function<void()> action);
  /// For a rank whose communication has failed: waits for the watch to find the lost rank that is the reason, which
  /// ends the process; returns if there is none.
  void find_lost();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    int stat = -1;  ///< /proc/PID/stat, open, of those that this rank asks about
    bool opened = false, dead = false;
    Clock::time_point failed;
  };
  struct Neighbour {
    Clock::time_point failed;
    int64_t missed_ms = 0;  ///< when this rank could not have heard it
  };
  void run();
  std::chrono::milliseconds until_next() const;
  void look();
  bool leads(int64_t now_ms) const;
  NodeNews news(int64_t now_ms) const;
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
  Clock::time_point looked_, left_;  ///< left_: when leaving was first called for
  io::LineWriter errors_ = standard_error();
  std::unique_ptr<HangDetector> hang_;  ///< made and used by the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  HangOptions hang_options_;
  std::function<void()> before_end_;
  bool stop_ = false;
  bool failing_ = false;  ///< an exception passes through the destructor
  std::thread thread_;
};

}  // namespace ashlar::watch
