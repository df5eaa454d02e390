#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launch/commands/restarts.h"

namespace ashlar::launch {

// What `ashlar launch` itself has to say while a job runs: one struct with the values and one function that makes the
// line (without "ashlar: " and line break), so that whoever passes these on finds them in one place.

/// A signal has come, and the ranks are told to save and to stop.
struct RanksTold {
  int signal = 0;
};
std::string event_line(const RanksTold& event);

/// A signal ends the ranks.
struct RanksEnded {
  int signal = 0;
  bool saves = false;  ///< what the ranks do when they are told in time
};
std::string event_line(const RanksEnded& event);

/// mpirun itself has died of a signal, and its ranks with it.
struct MpirunKilled {
  int signal = 0;
};
std::string event_line(const MpirunKilled& event);

/// Standard output, or standard error, could not be passed on.
struct OutputLost {
  int why = 0;        ///< an error number; 0: nobody has read it
  int64_t lines = 0;  ///< dropped because nobody has read them; 0: from now on they are
  int fd = 1;         ///< or 2: standard error
};
std::string event_line(const OutputLost& event);

/// A run that has lost a rank is started again.
struct RunRestarted {
  int64_t restart = 0;    ///< counted from 1
  int64_t committed = 0;  ///< step of its newest checkpoint
  std::chrono::milliseconds wait{0};
};
std::string event_line(const RunRestarted& event);

/// It is not started again.
struct RestartsEnded {
  int64_t restarts = 0;  ///< in a row
  int64_t committed = 0;
};
std::string event_line(const RestartsEnded& event);

/// What became of the steps and the time of a run that was kept alive.
struct RunGoodput {
  int64_t step = 0;  ///< of the newest checkpoint
  int64_t restarts = 0;
  Goodput goodput;
};
std::string event_line(const RunGoodput& event);
std::string event_json(const RunGoodput& event);  ///< a row of metrics.jsonl, without a line break

}  // namespace ashlar::launch
