#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace ashlar::testing {

/// An input of a parser with one to four small damages: bits turned over, bytes lost, doubled, moved or cut off,
/// numbers and words put in that parsers stumble over, nesting of thousands of levels. A pure function of input, seed
/// and trial; works for text and binary forms.
std::string mutated(std::string_view input, uint64_t seed, uint64_t trial);

/// A parser fed with mutated inputs.
struct MutationTrials {
  std::vector<std::string> inputs;  ///< good ones, taken in turn
  uint64_t seed = 1;
  int64_t trials = 60;         ///< as always
  int64_t long_trials = 5000;  ///< when the long form is asked for
  /// What the parser may end with, beside success.
  std::vector<ExitCode> codes = {ExitCode::kInput};
  double most_cpu_sec = 5;       ///< of this thread, for one trial
  int64_t most_memory_mb = 256;  ///< growth of the peak memory of the process over all trials
};

/// Calls `parse` with each mutated input. A failure of the test, which names trial and input: an exception that is no
/// Error of one of the codes with one line, more time or memory than allowed. A signal ends the test itself.
void expect_bounded(const MutationTrials& trials, const std::function<void(const std::string& input)>& parse);

}  // namespace ashlar::testing
