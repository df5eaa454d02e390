#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "launch/watch/file_stall.h"
#include "launch/watch/node_pages.h"
#include "launch/watch/rank_board.h"
#include "launch/watch/thread_watch.h"

namespace ashlar::watch {

struct HangOptions {
  double after_seconds = 0;    ///< beyond the longest step; 0: hangs are nobody's business
  double stall_seconds = 600;  ///< so long, if that is longer, while a rank waits for a file system
  bool stop = true;            ///< the job ends after the report
  int64_t nodes = 1;
  bool continues = true;  ///< the job's command goes on from a checkpoint when it is given again
};

/// Sees that no rank gets anything done, and reports: every rank's step, action, last operations and threads, and who
/// may be the reason. A rank that waits for a file system is told at once as a warning, and is no hang until it has
/// lasted `stall_seconds`: who writes checkpoints meets stalls that end. Each node reports its own ranks; how long all
/// have been quiet goes round with their beats. Used by one thread, which is the one that makes it; it never waits.
class HangWatch {
 public:
  HangWatch(RankBoard& board, std::span<RankPage> pages);

  void set(const HangOptions& options) { options_ = options; }

  void beat();                   ///< shows that this rank lives, and whether it gets on
  void held_up(int64_t now_ms);  ///< this rank was stopped itself: what it knows is old
  /// Milliseconds since anybody got on, as far as this node and what reached it knows.
  int64_t quiet_ms(std::span<const NodeInbox> inboxes, int64_t now_ms) const;
  /// Milliseconds since anybody was seen to wait for a file system, as far as this node knows.
  int64_t stall_age_ms(std::span<const NodeInbox> inboxes, int64_t now_ms) const;
  /// Answers who reports, and reports if this rank leads. True: the process is to end.
  bool look(std::span<const NodeInbox> inboxes, int64_t now_ms, bool leads);

 private:
  void answer();
  void ask(int64_t now_ms);
  bool all_answered() const;
  void tell_stalls(int64_t now_ms);
  void report(int64_t quiet, int64_t now_ms);

  RankBoard& board_;
  const std::span<RankPage> pages_;
  HangOptions options_;
  const int64_t began_ms_;
  StackSampler sampler_;
  IoMeter io_;
  FileStallWatch files_;
  std::optional<int64_t> stall_told_ms_;  ///< since when the stall lasts that this rank has told
  uint64_t io_seen_ = 0;
  int64_t held_up_ms_ = 0;
  uint32_t known_request_ = 0;             ///< the last one while ranks got on
  std::optional<int64_t> other_asked_ms_;  ///< when this rank saw that another asked
  std::optional<int64_t> asked_ms_;        ///< when stacks were asked for
  uint32_t request_ = 0;
  bool reported_ = false;
};

}  // namespace ashlar::watch
