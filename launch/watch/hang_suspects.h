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
  char state = 'S';     ///< state of its main thread, as in ProcessStat
  bool answers = true;  ///< its watch thread has reported its stacks
  std::string threads;  ///< lines of describe_threads, or the kernel's information
  std::string stall;    ///< from describe_stall; empty: no wait for a file system
};

/// Certainty that a rank is the cause of a hang.
enum class Suspicion : uint32_t {
  kNone,
  kBehind,     ///< others have issued an operation that it has not issued
  kBusy,       ///< it does not wait for others, while others wait
  kMismatch,   ///< it has issued a different operation than the others
  kSuspended,  ///< it is stopped, gone, in an uninterruptible call, or waits for a file system
};
struct Suspect {
  Suspicion suspicion = Suspicion::kNone;
  int32_t rank = 0;
  std::string text;  ///< "rank 2 of 4 on node7 is stopped (state T) in backward of micro-batch 1"
};

/// The ranks that may be the cause of the hang: those with the strongest suspicion. Empty when all ranks wait for each
/// other in the same operations.
std::vector<Suspect> find_suspects(std::span<const RankSnapshot> ranks);

/// The current action of a rank: "step 17, backward of micro-batch 3 for 62 s, waits for other ranks, last operation
/// ..., its 812. of all".
std::string describe_action(const RankPage& page, int64_t now_ms);
/// describe_action with the last operations and threads of the rank, one line each, each prefixed by `prefix`.
std::string describe_hung(const RankSnapshot& rank, int64_t now_ms, const std::string& prefix);

/// "rank 3", "ranks 0-3, 8": for ascending ranks.
std::string list_ranks(std::span<const int32_t> ranks);

/// The time without progress that counts as a hang: `hang_after` beyond the longest step of any of these ranks.
int64_t hang_limit_ms(std::span<const RankPage> pages, double hang_after_seconds);
/// Milliseconds since the last progress of any running rank.
int64_t quiet_ms(std::span<const RankPage> pages, int64_t now_ms);

}  // namespace ashlar::watch
