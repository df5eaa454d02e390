#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// A rank, as the one that reports a hang sees it.
struct RankSight {
  const RankPage& page;
  char state = 'S';     ///< of its main thread, as in ProcessStat
  bool answers = true;  ///< its watch has said where its threads are
  std::string threads;  ///< lines of describe_threads, or what the kernel says of them
  std::string stall;    ///< of describe_stall; empty: it waits for no file system
};

/// How sure it is that a rank is the reason for a hang.
enum class Suspicion : uint32_t {
  kNone,
  kBehind,     ///< others have issued an operation that it has not
  kBusy,       ///< it does not wait for others, while others wait
  kMismatch,   ///< it has issued another operation than the others in its place
  kSuspended,  ///< it is stopped, gone, in a call that nothing interrupts, or waits for a file system
};
struct Suspect {
  Suspicion suspicion = Suspicion::kNone;
  int32_t rank = 0;
  std::string text;  ///< "rank 2 of 4 on node7 is stopped (state T) in backward of micro-batch 1"
};

/// Who may be the reason that nobody gets on: those of the strongest suspicion, all of them; empty when all wait for
/// each other in the same operations.
std::vector<Suspect> find_suspects(std::span<const RankSight> ranks);

/// What a rank is at: "step 17, backward of micro-batch 3 for 62 s, waits for other ranks, last operation ..., its 812.
/// of all".
std::string describe_action(const RankPage& page, int64_t now_ms);
/// That, and its last operations and threads, a line each, with `prefix` before each.
std::string describe_hung(const RankSight& rank, int64_t now_ms, const std::string& prefix);

/// "rank 3", "ranks 0-3, 8": of ascending ones.
std::string list_ranks(std::span<const int32_t> ranks);

/// The limit of silence: `hang_after` beyond the longest step of any of these ranks.
int64_t hang_limit_ms(std::span<const RankPage> pages, double hang_after_seconds);
/// Milliseconds since any of the ranks that still run got something done.
int64_t quiet_ms(std::span<const RankPage> pages, int64_t now_ms);

}  // namespace ashlar::watch
