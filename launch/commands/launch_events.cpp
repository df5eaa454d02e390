#include "launch/commands/launch_events.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/commands/job_signals.h"

namespace ashlar::launch {

std::string ranks_asked_to_stop(int signal) {
  return str_cat(signal_name(signal),
                 ": asking the ranks to save and stop (SIGUSR1); a second signal ends them at once");
}

std::string ranks_ended(int signal, bool saves) {
  return str_cat(signal_name(signal), ": mpirun ends the ranks within about a second",
                 saves ? "; unsaved steps are lost" : "");
}

std::string mpirun_without_ranks(std::chrono::milliseconds time) {
  return str_cat("no rank runs on this machine and none has answered for ", time.count() / 1000, " s; ending mpirun");
}

std::string mpirun_killed(int signal) {
  return str_cat("[launch] mpirun was killed by ", signal_name(signal),
                 ", and its ranks with it; the job ends here: run the command again");
}

std::string output_lost(const OutputLost& lost) {
  const std::string stream = lost.fd == 2 ? "standard error" : "standard output";
  if (lost.why != 0)
    return str_cat("warning: ", stream, " cannot be written (", std::strerror(lost.why), "); its lines are lost");
  if (lost.lines == 0)
    return str_cat("warning: no reader on ", stream, ": its lines are dropped until it is read; the job continues");
  return str_cat("warning: no reader on ", stream, ": ", lost.lines, lost.lines == 1 ? " line was" : " lines were",
                 " dropped");
}

std::string run_restarted(int64_t restart, int64_t committed, std::chrono::milliseconds wait) {
  return str_cat("[launch] restart ", restart, " in ", wait.count() / 1000, " s, ",
                 committed == 0 ? "from the beginning: there is no checkpoint"
                                : str_cat("from the checkpoint of step ", committed));
}

std::string restarts_ended(int64_t restarts, int64_t committed) {
  return str_cat("[launch] ", restarts, restarts == 1 ? " restart" : " restarts",
                 " in a row without a new checkpoint (the newest is of step ", committed,
                 "): the run ends; see the lines above about the lost ranks");
}

std::string to_line(const RunGoodput& run) {
  const Goodput& g = run.goodput;
  return absl::StrFormat("goodput: %d of %d steps kept (%.1f%%), %.0f of %.0f s (%.1f%%), %d restart%s", g.kept_steps,
                         g.made_steps, 100 * g.steps(), g.kept_seconds, g.seconds, 100 * g.time(), run.restarts,
                         run.restarts == 1 ? "" : "s");
}

std::string to_json(const RunGoodput& run) {
  const Goodput& g = run.goodput;
  nlohmann::ordered_json row;
  row["step"] = run.step;
  row["restarts"] = run.restarts;
  row["kept_steps"] = g.kept_steps;
  row["made_steps"] = g.made_steps;
  row["goodput_steps"] = g.steps();
  row["kept_seconds"] = g.kept_seconds;
  row["launch_seconds"] = g.seconds;
  row["goodput_time"] = g.time();
  return row.dump();
}

}  // namespace ashlar::launch
