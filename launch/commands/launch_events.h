#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launch/commands/restarts.h"

namespace ashlar::launch {

// Messages of `ashlar launch` while a job runs: each function formats a line, without the prefix "ashlar: " and without
// a line break.

/// A signal has arrived, and the ranks are asked to save and stop.
std::string ranks_asked_to_stop(int signal);

/// A signal ends the ranks. `saves`: true if the job saves checkpoints; the line then says that unsaved steps are lost.
std::string ranks_ended(int signal, bool saves);

/// No rank has answered a signal for this time and none runs here: mpirun hangs, and is ended.
std::string mpirun_without_ranks(std::chrono::milliseconds time);

/// A signal has killed mpirun, and so its ranks.
std::string mpirun_killed(int signal);

/// Standard output or standard error could not be forwarded.
struct OutputLost {
  int why = 0;        ///< errno of the failed write; 0: the stream has no reader
  int64_t lines = 0;  ///< number of lines dropped; 0: dropping begins now
  int fd = 1;         ///< 1: standard output, 2: standard error
};
std::string output_lost(const OutputLost& lost);

/// A run is restarted after a lost rank. `restart` counts from 1; `committed` is the step of its newest checkpoint.
std::string run_restarted(int64_t restart, int64_t committed, std::chrono::milliseconds wait);

/// A run is not restarted again, after `restarts` restarts in a row.
std::string restarts_ended(int64_t restarts, int64_t committed);

/// Steps and time of a run with restarts.
struct RunGoodput {
  int64_t step = 0;  ///< step of the newest checkpoint
  int64_t restarts = 0;
  Goodput goodput;
};
std::string to_line(const RunGoodput& run);
std::string to_json(const RunGoodput& run);  ///< a row of metrics.jsonl, without a line break

}  // namespace ashlar::launch
