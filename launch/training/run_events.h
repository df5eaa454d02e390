#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

namespace ashlar::training {

// Events of a run that are neither steps nor errors. Each has a struct with the values and a function that formats the
// line, without `warning: `. Once a run has its sinks, they receive the event (WarningEvent). Earlier events, and
// events of the metrics file itself, are written to the log as a line.

/// metrics.jsonl cannot be written; rows are held in memory and tried again with each following row.
struct MetricsHeldBack {
  std::filesystem::path path;
  std::string reason;  ///< the system's error
};
std::string to_line(const MetricsHeldBack& event);

/// All held rows are written.
struct MetricsCaughtUp {
  std::filesystem::path path;
  int64_t rows = 0;
};
std::string to_line(const MetricsCaughtUp& event);

/// Held rows are lost: memory was full, or the run has ended.
struct MetricsLost {
  std::filesystem::path path;
  int64_t rows = 0;
  std::string reason;  ///< the system's error
};
std::string to_line(const MetricsLost& event);

/// The run has rows of steps, but it never committed a checkpoint. It starts over at step 0.
struct StartsOver {
  std::filesystem::path run_dir;
  int64_t rows = 0;
};
std::string to_line(const StartsOver& event);

/// The run continues from a checkpoint older than the last committed one.
struct NewestCheckpointMissed {
  std::filesystem::path run_dir;
  int64_t committed_step = 0, step = 0;
};
std::string to_line(const NewestCheckpointMissed& event);

/// A start finds a lock and cannot tell whether its owner is alive: it watches for a while whether the owner writes.
struct OwnerWatched {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;
};
std::string to_line(const OwnerWatched& event);

/// That owner wrote nothing: this process takes over the run.
struct OwnerReplaced {
  std::filesystem::path run_dir;
  std::string owner;
};
std::string to_line(const OwnerReplaced& event);

/// A start finds the lock of a rank of the previous attempt (`launch --restarts`) and waits until that rank ends.
struct FormerAwaited {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;  ///< longest time to wait
};
std::string to_line(const FormerAwaited& event);

/// A dataset has no loss in a validation, because all its targets are masked (data.document_mask).
struct UncountedSource {
  std::string path;
  int64_t sequences = 0;  ///< read
};
std::string to_line(const UncountedSource& event);

/// A run is resumed with another train.steps, so that its decay does not end at the last step or the rate of the next
/// step changes.
struct ScheduleAtNewSteps {
  std::string kind;
  int64_t step = 0;  ///< done so far
  int64_t steps = 0;
  int64_t decay_begin = 0, decay_end = 0;  ///< steps done; both 0 where the kind has no decay of its own
  double lr_before = 0;                    ///< learning rate of the previous step
  double lr_next = 0;                      ///< learning rate of the next step
  double lr_next_before = 0;               ///< rate of the next step with the old train.steps
  double lr_last = 0;                      ///< learning rate of the last step
};
std::string to_line(const ScheduleAtNewSteps& event);

/// The threads of a rank mostly wait for each other.
struct ThreadsWait {
  int64_t rank = 0;
  double share = 0;  ///< waiting share of the time of all threads but one
  int64_t steps = 0;
  int threads = 0;
};
std::string to_line(const ThreadsWait& event);

/// Slow ranks are not detected in this run.
struct SlowRanksNotJudged {
  bool by_devices =
      false;  ///< true: devices are asynchronous, so the host cannot measure them; false: ranks share cores
};
std::string to_line(const SlowRanksNotJudged& event);

/// A rank takes longer for its own work than the other ranks of its stage, or, if it is alone in its stage, than at the
/// start of the run.
struct RankSlow {
  int64_t rank = 0;
  std::string host;
  double ms = 0, usual_ms = 0;
  bool lone = false;
  int64_t step = 0, steps = 0;  ///< detected at `step`, over `steps` steps
};
std::string to_line(const RankSlow& event);

/// A slow rank is no longer slow.
struct RankSlowOver {
  int64_t rank = 0;
  std::string host;
  double ms = 0, usual_ms = 0;
  int64_t step = 0;
};
std::string to_line(const RankSlowOver& event);

/// Warnings and notes that the sinks of a run receive (MetricSink::warning).
using WarningEvent = std::variant<StartsOver, ThreadsWait, SlowRanksNotJudged, RankSlow, RankSlowOver>;
std::string to_line(const WarningEvent& event);
bool is_note(const WarningEvent& event);  ///< information, not a warning

}  // namespace ashlar::training
