#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ashlar::training {

// Events of a run that are neither steps nor errors. Each has a struct with its values and a function that formats its
// line, without the prefix `warning: `. Once a run has created its sinks, they receive the events (WarningEvent).
// Earlier events, and events of the run's files themselves, are written to the log as lines.

/// A file of the run (HeldFile) cannot be written. Its entries are held in memory, and each later append tries again to
/// write them.
struct EntriesHeldBack {
  std::filesystem::path path;
  std::string_view entries;  ///< what the line calls them, e.g. rows
  std::string reason;        ///< the system's error
};
std::string to_line(const EntriesHeldBack& event);

/// All held entries are written.
struct EntriesCaughtUp {
  std::filesystem::path path;
  std::string_view entries;
  int64_t count = 0;
};
std::string to_line(const EntriesCaughtUp& event);

/// Held entries are lost, because the memory for them was full or the run has ended.
struct EntriesLost {
  std::filesystem::path path;
  std::string_view entries;
  int64_t count = 0;
  std::string reason;  ///< the system's error
};
std::string to_line(const EntriesLost& event);

/// metrics.jsonl has rows of steps, but the run never committed a checkpoint. The run starts over at step 0.
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

/// A run that starts cannot decide whether the owner of its directory is alive. It watches for a while whether the
/// owner writes.
struct OwnerWatched {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;
};
std::string to_line(const OwnerWatched& event);

/// The watched owner (OwnerWatched) wrote nothing. This process takes over the directory.
struct OwnerReplaced {
  std::filesystem::path run_dir;
  std::string owner;
};
std::string to_line(const OwnerReplaced& event);

/// A run that starts finds its directory locked by a rank of the previous attempt (`launch --restarts`). It waits until
/// that rank ends.
struct FormerAwaited {
  std::filesystem::path run_dir;
  std::string owner;
  double seconds = 0;  ///< longest time to wait
};
std::string to_line(const FormerAwaited& event);

/// A dataset has no loss in a validation, because all its targets are masked (data.document_mask).
struct UncountedSource {
  std::string path;
  int64_t sequences = 0;  ///< number of sequences read
};
std::string to_line(const UncountedSource& event);

/// A run is resumed with another train.steps, and either the learning rate of the next step changes or the decay does
/// not end at the new last step.
struct ScheduleAtNewSteps {
  std::string kind;
  int64_t step = 0;                        ///< steps completed before the resume
  int64_t steps = 0;                       ///< the new train.steps
  int64_t decay_begin = 0, decay_end = 0;  ///< completed steps at begin and end of the decay; both 0 without a decay
  double lr_before = 0;                    ///< learning rate of the previous step
  double lr_next = 0;                      ///< learning rate of the next step
  double lr_next_before = 0;               ///< learning rate of the next step with the old train.steps
  double lr_last = 0;                      ///< learning rate of the last step
};
std::string to_line(const ScheduleAtNewSteps& event);

/// The threads of a rank mostly wait for each other.
struct ThreadsWait {
  int64_t rank = 0;
  double share = 0;  ///< waiting time / (step time * (threads - 1))
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
  double ms = 0, usual_ms = 0;  ///< its own work per step; the time that it is compared with
  bool lone = false;            ///< compared with its own first steps, not with other ranks
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

/// Tokens have not chosen these experts for some time.
struct ExpertsIdle {
  struct Expert {
    int64_t layer = 0, expert = 0;
  };
  std::vector<Expert> experts;  ///< ordered by layer
  int64_t of = 0;               ///< experts of a layer
  int64_t step = 0, steps = 0;  ///< detected at `step`, after `steps` steps without a token
  std::string remedy;           ///< balance_remedy()
};
std::string to_line(const ExpertsIdle& event);

/// Many more tokens choose this expert than its share.
struct ExpertCrowded {
  int64_t layer = 0, expert = 0;
  double share = 0;             ///< tokens of the step that chose it / all tokens
  double balanced = 0;          ///< the share of each expert at balance
  int64_t step = 0, steps = 0;  ///< detected at `step`, after `steps` such steps
  std::string remedy;           ///< balance_remedy()
};
std::string to_line(const ExpertCrowded& event);

/// Warnings and notes that the sinks of a run receive (MetricSink::warning).
using WarningEvent =
    std::variant<StartsOver, ThreadsWait, SlowRanksNotJudged, RankSlow, RankSlowOver, ExpertsIdle, ExpertCrowded>;
std::string to_line(const WarningEvent& event);
bool is_note(const WarningEvent& event);  ///< true if the event is information, not a warning

}  // namespace ashlar::training
