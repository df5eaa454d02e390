#include "launch/commands/launch_events.h"

#include <cstring>

#include "core/base/strings.h"
#include "launch/commands/job_signals.h"

namespace ashlar::launch {

std::string event_line(const RanksTold& event) {
  return str_cat(signal_name(event.signal),
                 ": the ranks are told to save and to stop (SIGUSR1); a second signal ends them at once");
}

std::string event_line(const RanksEnded& event) {
  return str_cat(signal_name(event.signal), ": mpirun ends the ranks within about a second",
                 event.saves ? "; what they have not saved by then is lost" : "");
}

std::string event_line(const MpirunKilled& event) {
  return str_cat("[launch] mpirun was killed by ", signal_name(event.signal),
                 ", and its ranks with it; the job ends here: give the command again");
}

std::string event_line(const OutputLost& event) {
  if (event.why != 0)
    return str_cat("warning: standard output cannot be written (", std::strerror(event.why), "); its lines are lost");
  if (event.lines == 0)
    return "warning: nobody reads standard output: its lines are dropped until somebody does; the job continues";
  return str_cat("warning: nobody read standard output: ", event.lines, event.lines == 1 ? " line was" : " lines were",
                 " dropped");
}

}  // namespace ashlar::launch
