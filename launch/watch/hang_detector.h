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
  double after_seconds = 0;    ///< a hang: no progress for the longest step's time plus this time; 0: no detection
  bool starting = false;       ///< true before the first step, when after_seconds is not run.hang_after
  double stall_seconds = 600;  ///< replaces after_seconds, if longer, while a rank waits for a file system
  bool stop = true;            ///< true: the job ends after the report of a hang
  int64_t nodes = 1;           ///< number of nodes
  bool continues = true;       ///< true: the same command resumes the job from a checkpoint
};

/// Host name and ranks of a node of the job, for reports.
struct NodeRanks {
  std::string host;
  std::vector<int32_t> ranks;  ///< ascending
};

/// Detects that no rank makes progress. Reports every rank's step, action, last operations and threads, and the
/// suspects. A rank that waits for a file system for 10 s (or `after_seconds`, if shorter) is reported in a warning,
/// but counts as a hang only after `stall_seconds`, since most such stalls end. Used by one thread, which also
/// constructs it; no call blocks.
///   The heartbeats between nodes carry the age of the most recent progress among all ranks. In a hang each node writes
/// the state of its ranks to its RemotePages, which the nodes send to each other. Each node waits about `gather_ms` at
/// most for the reports of the other nodes, then prints the states of its own ranks. Among the nodes whose reports have
/// arrived, the node with the lowest rank also compares all ranks and names the suspects and the nodes without a
/// report.
class HangDetector {
 public:
  struct Args {
    FlightRecorder& recorder;
    std::span<RankPage> pages;  ///< states of this node's ranks, including the page of `recorder`
    RemotePages remote;         ///< reports of all ranks of the job; empty if the job has one node
    std::span<const NodeRanks> nodes;
    io::LineWriter& errors;  ///< receives the lines of reports
    int64_t gather_ms = 5000;
  };
  explicit HangDetector(const Args& args);

  void set(const HangOptions& options) { options_ = options; }

  void beat();                   ///< records a heartbeat and the progress of this rank
  void held_up(int64_t now_ms);  ///< call it after this process was stopped: the time without progress then begins anew
  void receive(std::span<const NodeInbox> inboxes, int64_t now_ms);
  /// Fills in three fields of this node's heartbeat to other nodes: the last progress, the last wait for a file system,
  /// and the longest step, each as far as this rank knows.
  void fill(NodeStatus& status, int64_t now_ms) const;
  /// Publishes this rank's stacks if another rank has requested them. Looks for a hang and, if `leads` (this rank
  /// represents its node, see Watchdog), reports it. Returns true if the process should end.
  bool look(int64_t now_ms, bool leads);
  /// True while the nodes exchange the reports of a hang. This rank must then poll more often, to forward reports
  /// quickly.
  bool polls_often(int64_t now_ms) const;

 private:
  // The most recent event of one kind (progress or stall) among all ranks, as far as this rank knows.
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
  std::optional<int64_t> stall_reported_ms_;  ///< start of the current stall, if this rank has reported it
  uint64_t io_seen_ = 0;
  int64_t held_up_ms_ = 0;
  Last progress_, stall_;
  int64_t remote_longest_ms_ = 0;  ///< longest step on other nodes
  std::optional<int64_t> hangs_since_ms_;
  uint32_t known_request_ = 0;             ///< number of the last stack request seen while there was progress
  std::optional<int64_t> other_asked_ms_;  ///< when this rank first saw another rank's stack request
  std::optional<int64_t> asked_ms_;        ///< when this rank requested stacks
  uint32_t request_ = 0;
  std::vector<RankSnapshot> own_;  ///< snapshots of this node's ranks; empty until the stacks have arrived
  /// The first nodes_received_ entries of nodes_ are known to have sent their reports; the first nodes_printed_ entries
  /// are known to have printed them.
  size_t nodes_received_ = 0, nodes_printed_ = 0;
  std::optional<int64_t> leave_ms_;
  bool reported_ = false;
};

}  // namespace ashlar::watch
