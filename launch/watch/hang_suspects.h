#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// The state of a rank, for the node that reports a hang.
struct RankSnapshot {
  const RankPage& page;
  char state = 'S';     ///< state of the rank's main thread, as in ProcessStat::state
  bool answers = true;  ///< true if the rank's watch thread has reported the stacks of its threads
  std::string threads;  ///< lines of describe_threads; if the rank does not answer, thread states from /proc
  std::string stall;    ///< text of describe_stall; empty: the rank does not wait for a file system
};

/// Certainty that a rank is the cause of a hang.
enum class Suspicion : uint32_t {
  kNone,
  kBehind,     ///< other ranks have issued an operation that this rank has not issued
  kBusy,       ///< this rank does not wait for other ranks; other ranks may wait for it
  kMismatch,   ///< this rank has issued a different operation than the others
  kSuspended,  ///< this rank is stopped, gone, in an uninterruptible call, or waits for a file system
};
struct Suspect {
  Suspicion suspicion = Suspicion::kNone;
  int32_t rank = 0;
  std::string text;  ///< "rank 2 of 4 on node7 is stopped (state T) in backward of micro-batch 1"
};

/// Returns the ranks with the strongest suspicion of being the cause of the hang. Empty if all ranks wait for each
/// other in the same operations.
std::vector<Suspect> find_suspects(std::span<const RankSnapshot> ranks);

/// Returns the current action of a rank: "step 17, backward of micro-batch 3 for 62 s, waits for other ranks, last
/// operation ..., operations in total: 812".
std::string describe_action(const RankPage& page, int64_t now_ms);
/// Returns describe_action with the last operations and the threads of the rank, one line each, each prefixed by
/// `prefix`.
std::string describe_hung(const RankSnapshot& rank, int64_t now_ms, const std::string& prefix);

/// Returns "rank 3" or "ranks 0-3, 8". `ranks` must be in ascending order.
std::string list_ranks(std::span<const int32_t> ranks);

/// Returns the time without progress that counts as a hang, in ms: the longest step of any of these ranks plus
/// `hang_after_seconds`.
int64_t hang_limit_ms(std::span<const RankPage> pages, double hang_after_seconds);
/// Returns the milliseconds since the most recent progress among the running ranks; 0 if no rank is running.
int64_t quiet_ms(std::span<const RankPage> pages, int64_t now_ms);

}  // namespace ashlar::watch
