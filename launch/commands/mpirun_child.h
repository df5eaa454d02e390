#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "launch/commands/job_processes.h"
#include "launch/commands/job_signals.h"
#include "launch/commands/output_queue.h"

namespace ashlar::launch {

/// Runs mpirun as a child, once or again and again: standard error through MpirunFilter, signals to this process by
/// JobSignals, saying what comes of them: mpirun itself passes no line of a rank while it ends them. Where ranks save,
/// the terminal's Ctrl-C does not reach their mpirun, nor do they read the terminal. A standard output that nobody
/// reads keeps no signal waiting: of a job that saves its lines are dropped and counted, other jobs wait for its
/// reader.
///   From construction to finish() the signals are taken; SIGHUP only where it was not ignored (nohup).
class MpirunChild {
 public:
  struct Args {
    bool prints_result = true;  ///< lines of standard output that nobody gets are a failure, not a warning
    bool saves = false;         ///< SIGUSR1 makes the ranks save and stop, with 75
  };
  explicit MpirunChild(const Args& args);
  MpirunChild(const MpirunChild&) = delete;
  MpirunChild& operator=(const MpirunChild&) = delete;
  ~MpirunChild();

  /// The words of a command. Returns when it and all its ranks of this machine have ended, and what Open MPI leaves in
  /// shared memory when it is killed is removed. The exit code is that of the command, but 75 to 77 where a signal
  /// ended the job (JobSignals), and 5 where a rank was lost or a signal killed mpirun itself. Input error when the
  /// command cannot be started.
  int run(std::vector<std::string> line);
  /// Waits for so long, or until a signal ends the job: then true.
  bool wait(std::chrono::milliseconds time);
  void say(const std::string& text);                               ///< a line on standard error, begun with "ashlar: "
  void say_line(const std::string& text);                          ///< another one
  int exit_code(int code) const { return told_.exit_code(code); }  ///< JobSignals::exit_code
  bool told_to_end() const { return told_.ending(); }
  /// Gives the signals back and waits until the output is written, 2 s at most where it may be lost. Resource error
  /// when a result could not be written.
  void finish(int code);

 private:
  struct Streams;
  void take_signals();
  void send(pid_t child);
  void say_lost();
  bool pass(Streams& streams, int milliseconds);
  bool waits_for_reader() const;
  void end_leftovers(pid_t child);

  Args args_;
  JobSignals told_;
  JobProcesses processes_;
  OutputQueue out_, err_;
  sigset_t before_{};
  int signals_ = -1;
  bool said_lost_ = false, finished_ = false;
};

}  // namespace ashlar::launch
