#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/io/line_writer.h"
#include "launch/commands/commands.h"
#include "launch/packaging/bundled_mpi.h"
#include "launch/terminal/status_line.h"
#include "launch/terminal/terminal.h"
#include "launch/training/clock.h"
#include "launch/uncaught.h"
#include "launch/watch/signals.h"
#include "launch/world.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace {

using ashlar::ExitCode;
using ashlar::terminal::kErase;

/// The output of the program. Lines of a training run are written by a thread, so that the run never waits for a
/// reader. Commands whose output is the result wait for the reader and fail if there is none.
class Output {
 public:
  Output(int64_t rank, bool prints_result) : rank_(rank), prints_result_(prints_result) {}

  /// The status line: on standard output of `train`, like its lines, and on standard error of other commands, whose
  /// standard output is their result.
  ashlar::terminal::StatusLine& status() { return status_; }

  void line(std::string_view line, ashlar::LineKind kind) {
    // Rank 0 prints the lines for all ranks. Other ranks print only their own warnings.
    if (rank_ != 0 && kind != ashlar::LineKind::kWarning) return;
    // Other ranks do not know what rank 0 has drawn on the terminal of the launcher.
    const std::string erase = rank_ == 0 ? status_.take_erase() : status_width() > 0 ? std::string(kErase) : "";
    std::string text = ashlar::str_cat(rank_ == 0 ? "" : ashlar::str_cat("rank ", rank_, ": "), line, "\n");
    if (!prints_result_) {
      lines_.add(erase + text, kind);
      report_failure();
      return;
    }
    if (!erase.empty()) draw(erase);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      lost_ = true;
    }
  }
  /// Waits for the writer for a limited time at the end of the process.
  void finish() {
    if (rank_ == 0) status_.clear();
    if (prints_result_) std::cout.flush();
    lines_.finish();
    report_failure();
    errors_.finish();
  }
  int error(const std::string& text, ExitCode code) {
    finish();
    to_standard_error(ashlar::str_cat("ashlar: ", text, "\n"));
    errors_.finish();
    return static_cast<int>(code);
  }
  bool lost() const { return lost_; }  ///< true if lines were lost

 private:
  /// Columns of the terminal on which the status line is drawn; 0: none.
  int status_width() const {
    // mpirun gives a rank a pseudo terminal for its output, whatever its own output is.
    if (ashlar::comm::launched_by_mpi()) return prints_result_ ? 0 : ashlar::terminal::width_of_launcher();
    return ashlar::terminal::width_of(prints_result_ ? STDERR_FILENO : STDOUT_FILENO);
  }
  void draw(std::string text) {
    if (!prints_result_) return lines_.add(std::move(text), ashlar::LineKind::kStatus);
    std::cout.flush();
    std::fputs(text.c_str(), stderr);
  }

  /// Lost output does not end a run; it is reported once on standard error.
  void report_failure() {
    if (const int why = lines_.new_failure(); why != 0)
      to_standard_error(ashlar::str_cat("ashlar: warning: standard output cannot be written (", std::strerror(why),
                                        "); its lines are lost\n"));
  }
  void to_standard_error(std::string text) {
    if (prints_result_) {
      std::fputs(text.c_str(), stderr);
    } else {
      errors_.add(std::move(text), ashlar::LineKind::kWarning);
    }
  }

  int64_t rank_;
  bool prints_result_, lost_ = false;
  ashlar::io::LineWriter lines_{STDOUT_FILENO}, errors_{STDERR_FILENO};
  ashlar::terminal::StatusLine status_{{.width = [this] { return rank_ == 0 ? status_width() : 0; },
                                        .write = [this](std::string text) { draw(std::move(text)); },
                                        .clock = ashlar::training::now_sec}};
};

/// Opens /dev/null for standard streams that are closed. Otherwise a file that is opened later, such as the lock of a
/// run, would get the descriptor of the closed stream and receive the printed lines.
void fill_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) std::_Exit(static_cast<int>(ExitCode::kResource));
}

/// Prints an error that only this rank has. The other ranks may be waiting for this rank, so MPI_Finalize, which waits
/// for all ranks, might never return. The process therefore exits without it; the launcher then kills the other ranks.
int fail(const std::string& text, ExitCode code, ashlar::comm::Bootstrap& bootstrap, Output& output) {
  const ashlar::comm::Communicator* ranks = bootstrap.started();
  if (ranks == nullptr || ranks->size() == 1) {
    // Ranks that are not connected yet have parsed the same command line and have the same error, so only rank 0 prints
    // it.
    return ashlar::launch::world_from_environment().rank == 0 ? output.error(text, code) : static_cast<int>(code);
  }
  output.error(
      ashlar::str_cat("rank ", ranks->rank(), " of ", ranks->size(), " on ", ashlar::comm::Bootstrap::host_name(),
                      ", after ", ranks->engine()->last_operation(), ": ", text),
      code);
  std::_Exit(static_cast<int>(code));
}

int run(const std::vector<std::string>& words, ashlar::watch::SignalWatch& signals, ashlar::comm::Bootstrap& bootstrap,
        ashlar::Log& log, Output& output) {
  try {
    const int code = ashlar::launch::run_command(words, signals, bootstrap, log, output.status());
    const bool lost = !std::cout.flush() || output.lost();
    // A command whose output is its result fails if output was lost.
    if (code == 0 && lost && ashlar::launch::prints_its_result(words)) {
      return fail(ashlar::str_cat("[output] ", ashlar::io::kOutputLost), ExitCode::kResource, bootstrap, output);
    }
    return code;
  } catch (const ashlar::comm::AllRanksError& error) {
    return bootstrap.started()->rank() == 0 ? output.error(error.what(), error.code()) : static_cast<int>(error.code());
  } catch (const ashlar::Error& error) {
    return fail(error.what(), error.code(), bootstrap, output);
  } catch (const std::exception& error) {
    if (const auto refused = ashlar::launch::refused_by_system(error))
      return fail(*refused, ExitCode::kResource, bootstrap, output);
    const std::string text = ashlar::on_one_line(error.what());
    return fail((text.starts_with("[") ? "" : "[bug] ") + text + " (please report this as a bug)", ExitCode::kBug,
                bootstrap, output);
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  ashlar::launch::report_what_nobody_catches();
  ashlar::packaging::use_bundled_mpi();
  ashlar::watch::SignalWatch signals;  // before any thread exists
  std::signal(SIGPIPE, SIG_IGN);       // a closed pipe becomes a failed write, reported by the writer
  std::signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  Output output(ashlar::launch::world_from_environment().rank, ashlar::launch::prints_its_result(words));
  ashlar::Log log([&](std::string_view line, ashlar::LineKind kind) { output.line(line, kind); });
  ashlar::comm::Bootstrap bootstrap;  // connects the other ranks, if any, when a command needs them
  const int code = run(words, signals, bootstrap, log, output);
  output.finish();
  // The launcher may send a signal to a rank that has not exited yet. From here on such a signal is not reported and
  // does not change the exit code.
  signals.finish(static_cast<ExitCode>(code));
  return code;
}
