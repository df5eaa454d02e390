#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "launch/watch/rank_page.h"
#include "launch/watch/rank_report.h"

namespace ashlar::watch {

/// A long time ago.
inline constexpr int64_t kNoStall = int64_t{1} << 50;

/// When something was last seen anywhere. What goes round the ring is known by its number: each node makes what it
/// hears a moment younger than it is, so that by age alone it would never grow old.
struct Sighting {
  uint64_t number = 0;  ///< larger than that of any before it that its node knew of
  int64_t age_ms = kNoStall;
};

/// What one node tells another of itself, many times a second.
struct NodeNews {
  RankState state = RankState::kRunning;  ///< kFinished: all its ranks are; kFailed: one has failed and said so
  int32_t node = 0;
  int32_t rank = 0, ranks = 1;  ///< its lowest rank that has not ended, and how many it has
  int32_t all_ranks = 1;
  int32_t padding = 0;  ///< named, so that no uninitialised byte is sent
  int64_t step = -1;
  Sighting progress;       ///< a rank, here or elsewhere, that got something done
  Sighting stall;          ///< one that was seen to wait for a file system
  int64_t longest_ms = 0;  ///< the longest step of any rank that this node knows of
  std::array<char, 64> host{};
  std::array<char, 192> operation{};  ///< the last one of that rank
};

/// What a node has heard from another.
struct NodeInbox {
  int64_t received_ms = 0;  ///< by machine_ms(); 0: nothing yet
  NodeNews news;
};

/// What a node knows of the ranks of the whole job when it hangs, in memory that its ranks share and nobody touches
/// before. Any rank may write: what has been torn by two at once is not believed, and reads as not heard.
class FarPages {
 public:
  struct Head {
    uint64_t changes = 0;
  };
  FarPages() = default;
  FarPages(void* memory, int64_t ranks) : memory_(memory), ranks_(memory == nullptr ? 0 : ranks) {}
  static size_t bytes_for(int64_t ranks);

  int64_t ranks() const { return ranks_; }  ///< 0: there is one node, and nothing here
  uint64_t changes() const;                 ///< grows with each that is put
  /// False, and nothing changes, when this one or a later one of its rank is there.
  bool put(const RankReport& report, int64_t now_ms) const;
  /// What was heard after `since_ms`, by this machine's clock.
  std::optional<RankReport> get(int64_t rank, int64_t since_ms) const;
  bool has(int64_t rank, int64_t since_ms) const;
  int64_t version(int64_t rank) const;  ///< 0: nothing has ever been heard

 private:
  struct Slot {
    int64_t heard_ms = 0;  ///< 0: nothing, or it is being written
    int64_t version = 0;
  };
  Slot& slot(int64_t rank) const;
  static std::span<std::byte> message(Slot& slot);

  void* memory_ = nullptr;
  int64_t ranks_ = 0;
};

/// Memory that the ranks of a node share, without a name in any file system: nothing stays behind whatever ends them.
/// A page for each rank, what the two nodes before this one have said, and, where there are other nodes, room for what
/// is known of all ranks of the job when it hangs.
class NodePages {
 public:
  static constexpr int kInboxes = 2;

  /// New memory for `count` ranks of `all`, 0 where there is one node. Processes forked from this one share it, others
  /// with `open`. Throws resource_error.
  explicit NodePages(int64_t count, int64_t all = 0);
  /// The memory that process `pid` of this machine knows as `fd`; null when it cannot be had.
  static std::unique_ptr<NodePages> open(int pid, int fd, int64_t count, int64_t all = 0);
  NodePages(const NodePages&) = delete;
  NodePages& operator=(const NodePages&) = delete;
  ~NodePages();

  int fd() const { return fd_; }
  void close_fd();  ///< when all have opened it
  std::span<RankPage> pages() const;
  std::span<NodeInbox> inboxes() const;
  FarPages far() const;

 private:
  NodePages() = default;
  bool map();
  size_t far_begins() const;
  size_t bytes() const;

  int fd_ = -1;
  int64_t count_ = 0, all_ = 0;
  void* memory_ = nullptr;
};

}  // namespace ashlar::watch
