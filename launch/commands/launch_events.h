#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launch/commands/restarts.h"

namespace ashlar::launch {

// Messages of `ashlar launch` while a job runs: one struct with the values and one function that formats the line
// (without "ashlar: " and line break).

/// A signal has arrived, and the ranks are asked to save and stop.
struct RanksAskedToStop {
  int signal = 0;
};
std::string event_line(const RanksAskedToStop& event);

/// A signal ends the ranks.
struct RanksEnded {
  int signal = 0;
  bool saves = false;  ///< the ranks save if they get the signal in time
};
std::string event_line(const RanksEnded& event);

/// A signal has killed mpirun, and so its ranks.
struct MpirunKilled {
  int signal = 0;
};
std::string event_line(const MpirunKilled& event);

/// Standard output or standard error could not be forwarded.
struct OutputLost {
  int why = 0;        ///< errno; 0: it had no reader
  int64_t lines = 0;  ///< dropped without a reader; 0: dropping starts now
  int fd = 1;         ///< 1: standard output, 2: standard error
};
std::string event_line(const OutputLost& event);

/// A run is restarted after a lost rank.
struct RunRestarted {
  int64_t restart = 0;    ///< counted from 1
  int64_t committed = 0;  ///< step of its newest checkpoint
  std::chrono::milliseconds wait{0};
};
std::string event_line(const RunRestarted& event);

/// A run is not restarted.
struct RestartsEnded {
  int64_t restarts = 0;  ///< number of restarts in a row
  int64_t committed = 0;
};
std::string event_line(const RestartsEnded& event);

/// Steps and time of a run with restarts.
struct RunGoodput {
  int64_t step = 0;  ///< step of the newest checkpoint
  int64_t restarts = 0;
  Goodput goodput;
};
std::string event_line(const RunGoodput& event);
std::string event_json(const RunGoodput& event);  ///< a row of metrics.jsonl, without a line break

}  // namespace ashlar::launch
