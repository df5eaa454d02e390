#pragma once

#include <string>

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

/// Standard output could not be passed on.
struct OutputLost {
  int why = 0;        ///< an error number; 0: nobody has read it
  int64_t lines = 0;  ///< dropped because nobody has read them; 0: from now on they are
};
std::string event_line(const OutputLost& event);

}  // namespace ashlar::launch
