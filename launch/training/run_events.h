#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

namespace ashlar::training {

// What happens in a run besides its steps and is no error: a small struct with the values, and one function each that
// makes the line, without `warning: `. Once a run has its sinks, they get the event (WarningEvent); what comes earlier,
// or from the file of metrics itself, is handed to the log as a line. A new event goes here, too.

/// metrics.jsonl takes no more rows; they are kept in memory and tried again with each row that follows.
struct MetricsHeldBack {
  std::filesystem::path path;
  std::string reason;  ///< the system's
};
std::string to_line(const MetricsHeldBack& event);

/// All rows that were held back are written.
struct MetricsCaughtUp {
  std::filesystem::path path;
  int64_t rows = 0;
};
std::string to_line(const MetricsCaughtUp& event);

/// Rows that were held back are gone: they were more than memory keeps, or the run has ended.
struct MetricsLost {
  std::filesystem::path path;
  int64_t rows = 0;
  std::string reason;  ///< why they could not be written
};
std::string to_line(const MetricsLost& event);

/// The run has rows of steps but has never committed a checkpoint, and begins again at step 0.
struct StartsOver {
  std::filesystem::path run_dir;
  int64_t rows = 0;
};
std::string to_line(const StartsOver& event);

/// The run continues from an older checkpoint than the last one that it has committed.
struct NewestCheckpointMissed {
  std::filesystem::path run_dir;
  int64_t committed_step = 0, step = 0;
};
std::string to_line(const NewestCheckpointMissed& event);

/// A start finds a lock and cannot tell whether its owner lives: it watches for so long whether that one still writes.
struct OwnerWatched {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;
};
std::string to_line(const OwnerWatched& event);

/// That owner wrote nothing meanwhile: the run is this process's now.
struct OwnerReplaced {
  std::filesystem::path run_dir;
  std::string owner;
};
std::string to_line(const OwnerReplaced& event);

/// A start finds the lock of a rank of the attempt before it (`launch --restarts`), and waits for that one's end.
struct FormerAwaited {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;  ///< at most
};
std::string to_line(const FormerAwaited& event);

/// A validation in which no target of a dataset counts: every one is masked (data.document_mask). It has no loss.
struct UncountedSource {
  std::string path;
  int64_t sequences = 0;  ///< read
};
std::string to_line(const UncountedSource& event);

/// A run goes on with another train.steps, and its decay does not end with it, or the rate of the next step changes.
struct ScheduleAtNewSteps {
  std::string kind;
  int64_t step = 0;  ///< done so far
  int64_t steps = 0;
  int64_t decay_begin = 0, decay_end = 0;  ///< steps done; both 0 where the kind has no decay of its own
  double lr_before = 0;                    ///< of the step before
  double lr_next = 0;                      ///< of the next step
  double lr_next_before = 0;               ///< what it would have been with the steps of before
  double lr_last = 0;                      ///< of the last step
};
std::string to_line(const ScheduleAtNewSteps& event);

/// The threads of a rank mostly wait for each other.
struct ThreadsWait {
  int64_t rank = 0;
  double share = 0;  ///< of the time in which all but one could have worked
  int64_t steps = 0;
  int threads = 0;
};
std::string to_line(const ThreadsWait& event);

/// Which rank is slow is not judged in this run.
struct SlowRanksNotJudged {
  bool by_devices = false;  ///< they work beside the host, which does not see their times; else: ranks share cores
};
std::string to_line(const SlowRanksNotJudged& event);

/// A rank takes longer for its own work than the ranks of its stage, or than at its beginning where it is alone there.
struct RankSlow {
  int64_t rank = 0;
  std::string host;
  double ms = 0, usual_ms = 0;
  bool lone = false;
  int64_t step = 0, steps = 0;  ///< seen at that step, over so many
};
std::string to_line(const RankSlow& event);

/// A rank that was slow no longer is.
struct RankSlowOver {
  int64_t rank = 0;
  std::string host;
  double ms = 0, usual_ms = 0;
  int64_t step = 0;
};
std::string to_line(const RankSlowOver& event);

/// What the sinks of a run are told besides its rows (MetricSink::warning).
using WarningEvent = std::variant<StartsOver, ThreadsWait, SlowRanksNotJudged, RankSlow, RankSlowOver>;
std::string to_line(const WarningEvent& event);
bool is_note(const WarningEvent& event);  ///< it says how things are; nothing is wrong

}  // namespace ashlar::training
