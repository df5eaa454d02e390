#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ashlar::training {

// What happens in a run besides its steps and is no error: a small struct with the values, and one function each that
// makes the line, without `warning: `. Whoever meets the event hands the line to the log. A new event goes here, too.

/// Standard output was not read for so long that lines had to be left out, at this place among the others.
struct LinesLeftOut {
  int64_t lines = 0;
};
std::string to_line(const LinesLeftOut& event);

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

/// A start finds a lock whose owner it cannot judge, and looks for so long whether that one still writes.
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

}  // namespace ashlar::training
