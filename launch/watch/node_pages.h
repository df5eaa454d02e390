#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// A long time ago.
inline constexpr int64_t kNoStall = int64_t{1} << 50;

/// What one node tells another of itself, many times a second.
struct NodeNews {
  RankState state = RankState::kRunning;  ///< kFinished: all its ranks are; kFailed: one has failed and said so
  int32_t node = 0;
  int32_t rank = 0, ranks = 1;  ///< its lowest rank that has not ended, and how many it has
  int32_t all_ranks = 1;
  int64_t step = -1;
  int64_t quiet_ms = 0;             ///< since any rank that this node knows of, here or elsewhere, got something done
  int64_t stall_age_ms = kNoStall;  ///< since any such rank was seen to wait for a file system
  std::array<char, 64> host{};
  std::array<char, 192> operation{};  ///< the last one of that rank
};

/// What a node has heard from another.
struct NodeInbox {
  int64_t received_ms = 0;  ///< by machine_ms(); 0: nothing yet
  NodeNews news;
};

/// Memory that the ranks of a node share, without a name in any file system: nothing stays behind whatever ends them.
/// A page for each rank, and what the two nodes before this one have said.
class NodePages {
 public:
  static constexpr int kInboxes = 2;

  /// New memory for `count` ranks. Processes forked from this one share it, others with `open`. Throws resource_error.
  explicit NodePages(int64_t count);
  /// The memory that process `pid` of this machine knows as `fd`; null when it cannot be had.
  static std::unique_ptr<NodePages> open(int pid, int fd, int64_t count);
  NodePages(const NodePages&) = delete;
  NodePages& operator=(const NodePages&) = delete;
  ~NodePages();

  int fd() const { return fd_; }
  void close_fd();  ///< when all have opened it
  std::span<RankPage> pages() const;
  std::span<NodeInbox> inboxes() const;

 private:
  NodePages() = default;
  bool map();
  static size_t bytes_for(int64_t count);

  int fd_ = -1;
  int64_t count_ = 0;
  void* memory_ = nullptr;
};

}  // namespace ashlar::watch
