#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/log.h"

namespace ashlar::io {

/// The error of a command whose result could not be written to standard output.
inline constexpr std::string_view kOutputLost =
    "standard output cannot be written: the disk is full, or the program that reads it has exited; free space, or keep "
    "the reader running, and run the command again";

/// Event: lines were dropped at this place of the output, since standard output or standard error was not read in time.
struct LinesLeftOut {
  int64_t lines = 0;
  int fd = 1;  ///< 1: standard output, 2: standard error
};
std::string to_line(const LinesLeftOut& event);  ///< returns the line that reports the event, without a line break

/// Writes lines to a descriptor that may not be read for a long time (a stopped terminal, a pager, a stuck log
/// collector), for a program that must not wait. `add` appends to a bounded queue, and a thread writes the lines. If
/// the queue is full, the oldest line of the lowest priority (LineKind) is dropped; a line in its place reports how
/// many lines were dropped. The order of lines is kept. If the system cannot create the thread, `add` and `finish`
/// write lines while the descriptor is ready.
/// A thread is used instead of poll() and short writes for three reasons: a terminal that is ready may accept less than
/// requested, another process may fill the pipe between poll() and write(), and O_NONBLOCK would affect all processes
/// that share the descriptor.
class LineWriter {
 public:
  struct Options {
    size_t most_bytes = size_t{256} << 10;  ///< maximum size of the queue
    /// Limits of `finish`: `patience` is the longest wait in which no byte is written, `longest` is the longest total
    /// wait.
    std::chrono::milliseconds patience{2000}, longest{10000};
  };
  explicit LineWriter(int fd) : LineWriter(fd, Options{}) {}
  LineWriter(int fd, const Options& options);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  /// Does not wait for the writer thread. The thread ends when all lines are written, or with the process; until then
  /// it uses the descriptor.
  ~LineWriter();

  /// Adds a line, which must end with a line break, or a drawing (LineKind::kStatus), which does not. A drawing
  /// replaces one that was not written yet, and is dropped without a report. Thread-safe.
  void add(std::string line, LineKind kind);
  /// Waits until all lines are written, but stops after `longest`, or after `patience` without progress. Returns false
  /// if lines remain (they may still be written later) or if a write has failed. If an earlier call timed out and
  /// nothing was written since, returns at once.
  bool finish();
  /// Returns the errno of a failed write in the first call after the failure, and 0 in all other calls. After a
  /// failure, all further lines are dropped.
  int new_failure();

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with the writer thread, which may outlive this object
};

}  // namespace ashlar::io
