#include "launch/commands/launch_events.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/commands/job_signals.h"

namespace ashlar::launch {

std::string event_line(const RanksAskedToStop& event) {
  return str_cat(signal_name(event.signal),
                 ": asking the ranks to save and stop (SIGUSR1); a second signal ends them at once");
}

std::string event_line(const RanksEnded& event) {
  return str_cat(signal_name(event.signal), ": mpirun ends the ranks within about a second",
                 event.saves ? "; unsaved steps are lost" : "");
}

std::string event_line(const MpirunKilled& event) {
  return str_cat("[launch] mpirun was killed by ", signal_name(event.signal),
                 ", and its ranks with it; the job ends here: run the command again");
}

std::string event_line(const OutputLost& event) {
  const std::string stream = event.fd == 2 ? "standard error" : "standard output";
  if (event.why != 0)
    return str_cat("warning: ", stream, " cannot be written (", std::strerror(event.why), "); its lines are lost");
  if (event.lines == 0)
    return str_cat("warning: no reader on ", stream, ": its lines are dropped until it is read; the job continues");
  return str_cat("warning: no reader on ", stream, ": ", event.lines, event.lines == 1 ? " line was" : " lines were",
                 " dropped");
}

std::string event_line(const RunRestarted& event) {
  return str_cat("[launch] restart ", event.restart, " in ", event.wait.count() / 1000, " s, ",
                 event.committed == 0 ? "from the beginning: there is no checkpoint"
                                      : str_cat("from the checkpoint of step ", event.committed));
}

std::string event_line(const RestartsEnded& event) {
  return str_cat("[launch] ", event.restarts, event.restarts == 1 ? " restart" : " restarts",
                 " in a row without a new checkpoint (the newest is of step ", event.committed,
                 "): the run ends; see the lines above about the lost ranks");
}

std::string event_line(const RunGoodput& event) {
  const Goodput& g = event.goodput;
  return absl::StrFormat("goodput: %d of %d steps kept (%.1f%%), %.0f of %.0f s (%.1f%%), %d restart%s", g.kept_steps,
                         g.made_steps, 100 * g.steps(), g.kept_seconds, g.seconds, 100 * g.time(), event.restarts,
                         event.restarts == 1 ? "" : "s");
}

std::string event_json(const RunGoodput& event) {
  const Goodput& g = event.goodput;
  nlohmann::ordered_json row;
  row["step"] = event.step;
  row["restarts"] = event.restarts;
  row["kept_steps"] = g.kept_steps;
  row["made_steps"] = g.made_steps;
  row["goodput_steps"] = g.steps();
  row["kept_seconds"] = g.kept_seconds;
  row["launch_seconds"] = g.seconds;
  row["goodput_time"] = g.time();
  return row.dump();
}

}  // namespace ashlar::launch
