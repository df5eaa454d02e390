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
///   The time of the last progress anywhere travels with the heartbeats between nodes. In a hang each node publishes
/// the state of its ranks in the far pages, which travel too, and prints its own ranks. The node with the lowest known
/// rank compares all and names the odd one out. It waits for missing nodes until `gather_ms` after the hang was
/// detected, and names those.
class HangDetector {
 public:
  struct Args {
    FlightRecorder& recorder;
    std::span<RankPage> pages;  ///< pages of this node's ranks, including the recorder's
    FarPages far;               ///< reports of all ranks; empty for one node
    std::span<const NodeRanks> nodes;
    io::LineWriter& errors;  ///< where reports are printed
    int64_t gather_ms = 5000;
  };
  explicit HangDetector(const Args& args);

  void set(const HangOptions& options) { options_ = options; }

  void beat();                   ///< records a heartbeat and the progress of this rank
  void held_up(int64_t now_ms);  ///< this rank itself was stopped: its knowledge is out of date
  void hear(std::span<const NodeInbox> inboxes, int64_t now_ms);
  /// Fills in the message to other nodes: the last progress and the last wait for a file system that this rank knows
  /// of.
  void tell(NodeNews& news, int64_t now_ms) const;
  /// Answers a reporting rank, and reports if this rank leads. True: the process should end.
  bool look(int64_t now_ms, bool leads);
  /// True if other nodes wait for data that this rank forwards, so that it must poll more often.
  bool hurries(int64_t now_ms) const;

 private:
  // The last event anywhere, as far as this rank knows.
  struct Last {
    uint64_t number = 0;  ///< number of the Sighting
    int64_t at_ms = 0;    ///< time by the clock of this machine; 0: never
    void here(int64_t ms);
    void receive(const Sighting& sighting, int64_t received_ms);
    Sighting sighting(int64_t now_ms) const;
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
  bool speaks() const;
  std::string missing_nodes() const;
  std::string conclude() const;
  void report(int64_t quiet, int64_t now_ms);
  void say(std::string_view lines);

  FlightRecorder& recorder_;
  const std::span<RankPage> pages_;
  const FarPages far_;
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
  int64_t far_longest_ms_ = 0;  ///< longest step on other nodes
  std::optional<int64_t> hangs_since_ms_;
  uint32_t known_request_ = 0;             ///< the last stack request while there was progress
  std::optional<int64_t> other_asked_ms_;  ///< when this rank saw another rank's request
  std::optional<int64_t> asked_ms_;        ///< when this rank requested stacks
  uint32_t request_ = 0;
  std::vector<RankSight> own_;                     ///< ranks of this node, once examined
  size_t nodes_received_ = 0, nodes_printed_ = 0;  ///< lower bounds on nodes with reports, and on nodes that printed
  std::optional<int64_t> leave_ms_;
  bool reported_ = false;
};

}  // namespace ashlar::watch
