#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/runs/curve.h"
#include "launch/runs/run_folder.h"
#include "launch/runs/statistics.h"

namespace ashlar::runs {

/// Runs whose configurations differ at most in run.seed, run.dir and run.threads.
struct RunGroup {
  std::string label;  ///< A, B, ...
  std::vector<RunFolder> runs;
};

/// Keys in which two runs differ, without run.seed, run.dir and run.threads. Both must have a configuration.
std::vector<config::ConfigChange> differing_keys(const RunFolder& a, const RunFolder& b);

/// Makes the groups of `ashlar compare`. A word with commas is a group, and its runs must differ in nothing else.
/// Otherwise runs with equal configurations become one group; if all would be in one, each run is a group. Throws an
/// input error for anything that is no run, or has no configuration, and for fewer than two groups.
std::vector<RunGroup> make_groups(const std::vector<std::string>& words);

/// A metric of two groups at one place of an axis.
struct Comparison {
  std::string metric;  ///< loss, val_loss, tokens_per_sec
  XAxis axis = XAxis::kStep;
  double at = 0;
  std::vector<double> a, b;  ///< by run
  Difference difference;     ///< b minus a
};

/// Mean of the last `window` values up to `at`; nothing if the run has not come so far, or lacks the metric.
std::optional<double> value_at(const RunFolder& run, const std::string& key, XAxis axis, double at, size_t window);

/// Compares the training loss (mean of 20 steps) at a quarter, half, three quarters and all of what all runs have, of
/// steps, tokens and time; the validation loss at up to four common steps; the median of tokens_per_sec, whose axis is
/// the last common step. Tokens are left out if each step has equally many in both groups.
std::vector<Comparison> compare_groups(const RunGroup& a, const RunGroup& b);

/// "B is lower by 0.0210 [0.0100, 0.0320] at step 1000", or that there is no clear difference, or no interval.
std::string in_words(const Comparison& c, const std::string& a, const std::string& b);

}  // namespace ashlar::runs
