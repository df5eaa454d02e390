#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "launch/watch/rank_page.h"
#include "launch/watch/rank_report.h"

namespace ashlar::watch {

/// Age in ms of an event that never happened: larger than any duration.
inline constexpr int64_t kNoStall = int64_t{1} << 50;

/// The number and age of the most recent event of one kind among all nodes. The number identifies an event that is
/// passed around the ring. The age alone is not enough: it does not include the time of the transfer between nodes, so
/// an old event that returns to a node would seem newer than it is.
struct EventAge {
  uint64_t number = 0;  ///< larger than every number that the event's node knew before the event
  int64_t age_ms = kNoStall;
};

/// Heartbeat: message of a node about itself, sent to another node many times per second.
struct NodeStatus {
  /// kFinished: all ranks of the node have finished; kFailed: a rank of the node has failed or crashed.
  RankState state = RankState::kRunning;
  int32_t node = 0;             ///< lowest rank of the node, which identifies it
  int32_t rank = 0, ranks = 1;  ///< lowest running rank of the node; number of ranks of the node
  int32_t all_ranks = 1;        ///< number of ranks of the job
  int32_t padding = 0;          ///< named, so that no uninitialised byte is sent
  int64_t step = -1;            ///< step of `rank`
  EventAge progress;            ///< most recent progress among all ranks of the job
  EventAge stall;               ///< most recent wait for a file system among all ranks of the job
  int64_t longest_ms = 0;       ///< longest step of any rank, as far as this node knows
  std::array<char, 64> host{};
  std::array<char, 192> operation{};  ///< last operation of `rank`
};

/// The last heartbeat that a node has received from one of the two previous nodes.
struct NodeInbox {
  int64_t received_ms = 0;  ///< time by machine_ms(); 0: nothing received
  NodeStatus status;
};

/// Reports of all ranks of the job during a hang, in memory that the ranks of a node share. Before a hang the memory is
/// not touched. Any rank may write. A report garbled by two concurrent writers is detected and treated as not received.
class RemotePages {
 public:
  struct Head {
    uint64_t changes = 0;
  };
  RemotePages() = default;
  RemotePages(void* memory, int64_t ranks) : memory_(memory), ranks_(memory == nullptr ? 0 : ranks) {}
  static size_t bytes_for(int64_t ranks);

  int64_t ranks() const { return ranks_; }  ///< 0: the job has one node, and there is no memory for reports
  uint64_t changes() const;                 ///< grows with each `put` that stores a report
  /// Stores a report. Returns false without a change if this or a later report of its rank is already stored.
  bool put(const RankReport& report, int64_t now_ms) const;
  /// Returns the report of `rank`, if it was received after `since_ms` by this machine's clock; otherwise nothing.
  std::optional<RankReport> get(int64_t rank, int64_t since_ms) const;
  bool has(int64_t rank, int64_t since_ms) const;
  int64_t version(int64_t rank) const;  ///< version of the stored report of `rank`; 0: nothing received

 private:
  struct Slot {
    int64_t received_ms = 0;  ///< time of receipt; 0: there is no report, or it is being written
    int64_t version = 0;
  };
  Slot& slot(int64_t rank) const;
  static std::span<std::byte> message(Slot& slot);

  void* memory_ = nullptr;
  int64_t ranks_ = 0;
};

/// Shared memory of the ranks of a node. It has no name in any file system, so nothing remains when the ranks have
/// ended. It contains the state of each rank (RankPage), the last heartbeats of the two previous nodes, and, with
/// several nodes, the reports of all ranks of the job in a hang.
class NodePages {
 public:
  static constexpr int kInboxes = 2;

  /// Allocates memory for the `count` ranks of this node. `all`: number of ranks of the job; 0 if the job has one node.
  /// Child processes forked later share the memory, other processes use `open`. Throws resource_error.
  explicit NodePages(int64_t count, int64_t all = 0);
  /// Maps the memory that the process `pid` of this machine has created; `fd` is the memory's descriptor in that
  /// process. Returns null on failure.
  static std::unique_ptr<NodePages> open(int pid, int fd, int64_t count, int64_t all = 0);
  NodePages(const NodePages&) = delete;
  NodePages& operator=(const NodePages&) = delete;
  ~NodePages();

  int fd() const { return fd_; }
  void close_fd();  ///< called after all ranks have opened the memory
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
