#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "launch/watch/rank_page.h"
#include "launch/watch/rank_report.h"

namespace ashlar::watch {

/// Larger than any duration.
inline constexpr int64_t kNoStall = int64_t{1} << 50;

/// The number and age of the last event of a kind on any node. The number identifies an event that is passed around the
/// ring. The age alone is not enough: each node reports a slightly smaller age than the true one, so an old event that
/// returns would seem new.
struct EventAge {
  uint64_t number = 0;  ///< larger than all earlier numbers known to its node
  int64_t age_ms = kNoStall;
};

/// Message of a node about itself, sent to another node many times per second.
struct NodeStatus {
  RankState state = RankState::kRunning;  ///< kFinished: all its ranks have; kFailed: one has failed and reported it
  int32_t node = 0;
  int32_t rank = 0, ranks = 1;  ///< its lowest running rank, and its number of ranks
  int32_t all_ranks = 1;
  int32_t padding = 0;  ///< named, so that no uninitialised byte is sent
  int64_t step = -1;
  EventAge progress;       ///< progress of a rank on any node
  EventAge stall;          ///< a rank on any node that waits for a file system
  int64_t longest_ms = 0;  ///< the longest step of any rank known to this node
  std::array<char, 64> host{};
  std::array<char, 192> operation{};  ///< last operation of that rank
};

/// The last message that a node has received from another.
struct NodeInbox {
  int64_t received_ms = 0;  ///< time by machine_ms(); 0: nothing received
  NodeStatus status;
};

/// Reports of all ranks of the job during a hang, in memory that the ranks of a node share. Until then the memory is
/// not touched. Any rank may write. A report garbled by two concurrent writers is detected and treated as not received.
class RemotePages {
 public:
  struct Head {
    uint64_t changes = 0;
  };
  RemotePages() = default;
  RemotePages(void* memory, int64_t ranks) : memory_(memory), ranks_(memory == nullptr ? 0 : ranks) {}
  static size_t bytes_for(int64_t ranks);

  int64_t ranks() const { return ranks_; }  ///< 0: there is one node, and the pages are empty
  uint64_t changes() const;                 ///< grows with each put
  /// Returns false without a change if this or a later report of its rank is stored.
  bool put(const RankReport& report, int64_t now_ms) const;
  /// The report received after `since_ms`, by this machine's clock.
  std::optional<RankReport> get(int64_t rank, int64_t since_ms) const;
  bool has(int64_t rank, int64_t since_ms) const;
  int64_t version(int64_t rank) const;  ///< 0: nothing received

 private:
  struct Slot {
    int64_t received_ms = 0;  ///< time of receipt; 0: nothing, or being written
    int64_t version = 0;
  };
  Slot& slot(int64_t rank) const;
  static std::span<std::byte> message(Slot& slot);

  void* memory_ = nullptr;
  int64_t ranks_ = 0;
};

/// Shared memory of the ranks of a node. It has no name in any file system, so nothing remains when the ranks have
/// ended. Holds a page for each rank, the last messages of the two previous nodes, and, with several nodes, reports of
/// all ranks of the job in a hang.
class NodePages {
 public:
  static constexpr int kInboxes = 2;

  /// New memory for `count` ranks of `all`, 0 for one node. Processes forked from this one share it, others use `open`.
  /// Throws resource_error.
  explicit NodePages(int64_t count, int64_t all = 0);
  /// Maps the memory that process `pid` of this machine has as `fd`; null if not possible.
  static std::unique_ptr<NodePages> open(int pid, int fd, int64_t count, int64_t all = 0);
  NodePages(const NodePages&) = delete;
  NodePages& operator=(const NodePages&) = delete;
  ~NodePages();

  int fd() const { return fd_; }
  void close_fd();  ///< after all ranks have opened it
  std::span<RankPage> pages() const;
  std::span<NodeInbox> inboxes() const;
  RemotePages remote() const;

 private:
  NodePages() = default;
  bool map();
  size_t remote_begins() const;
  size_t bytes() const;

  int fd_ = -1;
  int64_t count_ = 0, all_ = 0;
  void* memory_ = nullptr;
};

}  // namespace ashlar::watch
