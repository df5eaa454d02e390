#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "launch/commands/job_processes.h"
#include "launch/commands/job_signals.h"
#include "launch/commands/output_queue.h"

namespace ashlar::launch {

/// Runs mpirun as a child process, once or repeatedly. Standard error passes through MpirunFilter. JobSignals handles
/// the signals to this process; the lines that it returns are printed on standard error, because mpirun forwards no
/// output of the ranks while it ends them. For jobs that save, the terminal's Ctrl-C does not reach mpirun, and the
/// ranks do not read the terminal. If nothing reads standard output, a job without a printed result (train) continues,
/// and its lines are dropped and counted; any other job waits for the reader. Signals are handled in both cases.
///   Signals are handled from construction to finish(); SIGHUP only if it was not ignored (nohup).
class MpirunChild {
 public:
  struct Args {
    bool prints_result = true;  ///< lost lines of standard output are an error, not a warning
    bool saves = false;         ///< SIGUSR1 makes the ranks save and exit with code 75
  };
  explicit MpirunChild(const Args& args);
  MpirunChild(const MpirunChild&) = delete;
  MpirunChild& operator=(const MpirunChild&) = delete;
  ~MpirunChild();

  /// Runs a command and waits until it and its ranks on this machine have ended. Then removes the shared memory that
  /// Open MPI leaves behind when it is killed. The result is the command's exit code, with two exceptions: 75 to 77 if
  /// a signal ended the job (JobSignals), and 5 if a rank was lost or a signal killed mpirun. Throws an input error if
  /// the command cannot be started.
  int run(std::vector<std::string> line);
  /// Waits for `time`, or until a signal ends the job; returns true if a signal has ended it.
  bool wait(std::chrono::milliseconds time);
  void print(const std::string& text);       ///< prints "ashlar: " and text on standard error
  void print_line(const std::string& text);  ///< prints a line on standard error
  /// The variables that this object has set for the ranks, which those on other machines get too.
  std::vector<const char*> variables() const;
  int exit_code(int code) const { return job_signals_.exit_code(code); }  ///< JobSignals::exit_code
  bool asked_to_end() const { return job_signals_.ending(); }
  /// Restores signal handling and waits until the output is written. For output that may be dropped (a job without a
  /// printed result, or a job that a signal ends), waits at most 2 s. Throws a resource error if the command has
  /// succeeded (`code` is 0) but its printed result could not be written.
  void finish(int code);

 private:
  struct Streams;
  void take_signals();
  void send(pid_t child);
  void report_lost_output();
  void to_standard_error(std::string_view text);
  bool pass(Streams& streams, int milliseconds);
  bool waits_for_reader() const;
  void end_leftovers(pid_t child);

  Args args_;
  JobSignals job_signals_;
  JobProcesses processes_;
  OutputQueue out_, err_;
  sigset_t before_{};
  int signals_ = -1;
  bool lost_output_reported_ = false, finished_ = false;
  int columns_ = 0;          ///< width of the terminal on which rank 0 of a job without a result draws; 0: none
  bool line_begins_ = true;  ///< the last byte written to standard error ends a line
};

}  // namespace ashlar::launch
