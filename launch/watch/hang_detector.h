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
  double after_seconds = 0;    ///< beyond the longest step; 0: hangs are nobody's business
  bool starting = false;       ///< before the first step: the limit is no key's
  double stall_seconds = 600;  ///< so long, if that is longer, while a rank waits for a file system
  bool stop = true;            ///< the job ends after the report
  int64_t nodes = 1;
  bool continues = true;  ///< the job's command continues from a checkpoint when it is given again
};

/// A node of the job, as reports name it.
struct NodeRanks {
  std::string host;
  std::vector<int32_t> ranks;  ///< ascending
};

/// Sees that no rank gets anything done, and reports: every rank's step, action, last operations and threads, and who
/// may be the reason. A rank that waits for a file system is told at once as a warning, and is no hang until it has
/// lasted `stall_seconds`: whoever writes checkpoints sees stalls that end. Used by one thread, which is the one that
/// makes it; it never waits.
///   When somebody last got on goes round with the beats of the nodes. In a hang each node puts what its ranks are at
/// among the far pages, which go round, too, and writes about its own ranks; the one with the lowest rank that anybody
/// has heard of compares all and names the odd one out. A node that is not heard is waited for until `gather_ms` after
/// the hang has been seen, and is named.
class HangDetector {
 public:
  struct Args {
    FlightRecorder& recorder;
    std::span<RankPage> pages;  ///< of the ranks of this node, the recorder's among them
    FarPages far;               ///< of all; none where there is one node
    std::span<const NodeRanks> nodes;
    io::LineWriter& errors;  ///< what it has to say
    int64_t gather_ms = 5000;
  };
  explicit HangDetector(const Args& args);

  void set(const HangOptions& options) { options_ = options; }

  void beat();                   ///< shows that this rank lives, and whether it gets on
  void held_up(int64_t now_ms);  ///< this rank was stopped itself: what it knows is old
  void hear(std::span<const NodeInbox> inboxes, int64_t now_ms);
  /// What other nodes are told: when anybody got on, or waited for a file system, as far as this rank knows.
  void tell(NodeNews& news, int64_t now_ms) const;
  /// Answers who reports, and reports if this rank leads. True: the process is to end.
  bool look(int64_t now_ms, bool leads);
  /// Others wait for what this rank passes on: it looks more often.
  bool hurries(int64_t now_ms) const;

 private:
  // When something last happened anywhere, as far as this rank knows.
  struct Last {
    uint64_t number = 0;  ///< of Sighting
    int64_t at_ms = 0;    ///< by this machine's clock; 0: never
    void here(int64_t ms);
    void heard(const Sighting& sighting, int64_t received_ms);
    Sighting sighting(int64_t now_ms) const;
  };
  int64_t quiet_ms(int64_t now_ms) const;
  int64_t longest_ms() const;
  int64_t hops_ms() const;
  void answer();
  void ask(int64_t now_ms);
  bool all_answered() const;
  void tell_stalls(int64_t now_ms);
  void look_at_own(int64_t now_ms);
  void share(bool told, int64_t now_ms);
  bool heard(const NodeRanks& node) const;
  bool all_heard();
  bool all_told();
  bool may_leave(int64_t now_ms);
  bool speaks() const;
  std::string unheard() const;
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
  std::optional<int64_t> stall_told_ms_;  ///< since when the stall lasts that this rank has told
  uint64_t io_seen_ = 0;
  int64_t held_up_ms_ = 0;
  Last progress_, stall_;
  int64_t far_longest_ms_ = 0;  ///< step, of the ranks of other nodes
  std::optional<int64_t> hangs_since_ms_;
  uint32_t known_request_ = 0;             ///< the last one while ranks got on
  std::optional<int64_t> other_asked_ms_;  ///< when this rank saw that another asked
  std::optional<int64_t> asked_ms_;        ///< when stacks were asked for
  uint32_t request_ = 0;
  std::vector<RankSight> own_;               ///< ranks of this node, once they have been looked at
  size_t nodes_heard_ = 0, nodes_told_ = 0;  ///< so many of the first, at least
  std::optional<int64_t> leave_ms_;
  bool reported_ = false;
};

}  // namespace ashlar::watch
