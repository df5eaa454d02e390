#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "launch/training/rank_board.h"
#include "launch/training/signals.h"

namespace ashlar::training {

/// What a rank knows of another.
enum class PeerState {
  kUnknown,   ///< has shown nothing yet
  kAlive,     ///< this rank itself, too
  kFinished,  ///< needs nobody any more
  kLeaving,   ///< has failed a moment ago and says why itself; perhaps all ranks are about to
  kGone,      ///< has failed and said why
  kLost,      ///< has died without a word
};
struct PeerView {
  PeerState state = PeerState::kUnknown;
  uint64_t machine = 0;
};
struct Verdict {
  bool leave = false;             ///< the job cannot go on
  bool wait = false;              ///< not yet: another rank is about to report
  std::optional<int64_t> report;  ///< the lost rank that this one, and no other, reports
  int64_t lost = 0;               ///< how many there are
};
/// A lost rank is reported by the lowest rank left on its machine, which knows for certain and at once; by the lowest
/// of all when the whole machine is lost. A rank that has been said to fail needs no report. The others stay until it
/// is out: when one leaves, mpirun kills the rest.
Verdict judge(std::span<const PeerView> ranks, int64_t self);

/// How long things may take; silence is for ranks on other machines, whose processes cannot be looked at.
struct WatchTimes {
  std::chrono::milliseconds beat{100};           ///< between two looks
  std::chrono::milliseconds silence{5000};       ///< after which a rank is lost
  std::chrono::milliseconds short_silence{600};  ///< while SIGTERM waits: mpirun kills about a second after it
  std::chrono::milliseconds farewell{2000};      ///< for an error that several ranks may be about to report
  std::chrono::milliseconds linger{200};         ///< of the one that reports: mpirun drops what it has not yet read
};

/// A thread that shows this rank alive and looks after the others; it never communicates. When one is lost or gone, the
/// process ends with code 5 (kPeerLost): its main thread may wait for that rank for ever. One rank says on standard
/// error which was lost, where, at what step, in what operation. Ranks that finish, are stopped by a debugger, or are
/// told to stop disturb nobody. Destroy it before the
/// board.
class PeerWatch {
 public:
  PeerWatch(RankBoard& board, const SignalWatch& signals, const WatchTimes& times = {});
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();

  /// For a rank whose communication has failed: waits for the watch to find the lost rank that is the reason, which
  /// ends the process; returns if there is none.
  void find_lost();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    std::optional<RankPage> page;
    Clock::time_point read, changed, failed;
    bool beats = false;  ///< has been seen to: else its file system does not show
  };
  void run();
  void look();
  PeerView view(int64_t rank, Clock::time_point now, bool stopping);
  [[noreturn]] void leave(const Verdict& verdict);

  RankBoard& board_;
  const SignalWatch& signals_;
  const WatchTimes times_;
  std::vector<Peer> peers_;
  const Clock::time_point began_;
  Clock::time_point looked_, flushed_, left_;  ///< left_: when leaving was first called for
  bool far_ = false;                           ///< some rank is on another machine

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ashlar::training
