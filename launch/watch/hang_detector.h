#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/line_writer.h"
#include "launch/watch/file_stall.h"
#include "launch/watch/flight_recorder.h"
#include "launch/watch/hang_suspects.h"
#include "launch/watch/node_pages.h"
#include "launch/watch/thread_watch.h"

namespace ashlar::watch {

struct HangOptions {
  double after_seconds = 0;    ///< limit beyond the longest step; 0: hangs are not detected
  bool starting = false;       ///< before the first step: the limit is not that of run.hang_after
  double stall_seconds = 600;  ///< the limit, if longer, while a rank waits for a file system
  bool stop = true;            ///< the job ends after the report
  int64_t nodes = 1;
  bool continues = true;  ///< the same command resumes the job from a checkpoint
};

/// A node of the job, for reports.
struct NodeRanks {
  std::string host;
  std::vector<int32_t> ranks;  ///< ascending
};

/// Detects that no rank makes progress and reports every rank's step, action, last operations and threads, and the
/// suspects. A rank that waits for a file system is reported at once as a warning, but counts as a hang only after
/// `stall_seconds`, since most such stalls end. Used by one thread, which also constructs it; it never blocks.
///   The heartbeats between nodes carry the time of the last progress of any rank. In a hang each node prints the state
/// of its ranks and writes it to the remote pages, which nodes also send to each other. The node with the lowest known
/// rank compares all ranks and names the suspects. It waits for reports of missing nodes until `gather_ms` after the
/// hang was detected, and then names these nodes.
class HangDetector {
 public:
  struct Args {
    FlightRecorder& recorder;
    std::span<RankPage> pages;  ///< pages of this node's ranks, including the recorder's
    RemotePages remote;         ///< reports of all ranks; empty for one node
    std::span<const NodeRanks> nodes;
    io::LineWriter& errors;  ///< where reports are printed
    int64_t gather_ms = 5000;
  };
  explicit HangDetector(const Args& args);

  void set(const HangOptions& options) { options_ = options; }

  void beat();                   ///< records a heartbeat and the progress of this rank
  void held_up(int64_t now_ms);  ///< this rank itself was stopped: its knowledge is out of date
  void receive(std::span<const NodeInbox> inboxes, int64_t now_ms);
  /// Fills in this node's message to other nodes: the last progress and the last wait for a file system known to this
  /// rank.
  void fill(NodeStatus& status, int64_t now_ms) const;
  /// Answers a rank that reports a hang, and reports a hang if this rank leads. Returns true if the process should end.
  bool look(int64_t now_ms, bool leads);
  /// True if other nodes wait for data that this rank forwards, so that it must poll more often.
  bool polls_often(int64_t now_ms) const;

 private:
  // The last event on any rank that this rank knows of.
  struct Last {
    uint64_t number = 0;  ///< number of the event (EventAge)
    int64_t at_ms = 0;    ///< time by the clock of this machine; 0: never
    void here(int64_t ms);
    void receive(const EventAge& event_age, int64_t received_ms);
    EventAge event_age(int64_t now_ms) const;
  };
  int64_t quiet_ms(int64_t now_ms) const;
  int64_t longest_ms() const;
  int64_t hops_ms() const;
  void answer();
  void ask(int64_t now_ms);
  bool all_answered() const;
  void report_stalls(int64_t now_ms);
  void look_at_own(int64_t now_ms);
  void share(bool printed, int64_t now_ms);
  bool has_reports(const NodeRanks& node) const;
  bool all_received();
  bool all_printed();
  bool may_leave(int64_t now_ms);
  bool prints_conclusion() const;
  std::string missing_nodes() const;
  std::string conclude() const;
  void report(int64_t quiet, int64_t now_ms);
  void print(std::string_view lines);

  FlightRecorder& recorder_;
  const std::span<RankPage> pages_;
  const RemotePages remote_;
  const std::span<const NodeRanks> nodes_;
  io::LineWriter& errors_;
  const int64_t gather_ms_;
  HangOptions options_;
  const int64_t began_ms_;
  StackSampler sampler_;
  IoMeter io_;
  FileStallWatch files_;
  std::optional<int64_t> stall_reported_ms_;  ///< start of the stall that this rank has reported
  uint64_t io_seen_ = 0;
  int64_t held_up_ms_ = 0;
  Last progress_, stall_;
  int64_t remote_longest_ms_ = 0;  ///< longest step on other nodes
  std::optional<int64_t> hangs_since_ms_;
  uint32_t known_request_ = 0;             ///< the last stack request while there was progress
  std::optional<int64_t> other_asked_ms_;  ///< when this rank saw another rank's request
  std::optional<int64_t> asked_ms_;        ///< when this rank requested stacks
  uint32_t request_ = 0;
  std::vector<RankSnapshot> own_;                  ///< ranks of this node, once examined
  size_t nodes_received_ = 0, nodes_printed_ = 0;  ///< lower bounds on nodes with reports, and on nodes that printed
  std::optional<int64_t> leave_ms_;
  bool reported_ = false;
};

}  // namespace ashlar::watch
