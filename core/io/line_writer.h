#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/log.h"

namespace ashlar::io {

/// A stream was not read for so long that lines were dropped at this place.
struct LinesLeftOut {
  int64_t lines = 0;
  int fd = 1;  ///< standard output, or 2: standard error
};
std::string to_line(const LinesLeftOut& event);  ///< without a line break

/// Writes lines to a descriptor that may have no reader (a stopped terminal, a pager, a stuck log collector), for a
/// program that must not wait. `add` never blocks: a thread writes from a bounded queue. If the queue is full, its
/// oldest line of the lowest priority is dropped (LineKind) and replaced by a line with the number of dropped lines;
/// the order is kept. If the system refuses the thread, a line is written if the descriptor accepts it at once, else
/// dropped. A thread is used instead of poll with short writes for three reasons: a terminal that is ready may accept
/// less than requested, another process may fill the pipe between poll and write, and O_NONBLOCK would affect everybody
/// who shares the descriptor.
class LineWriter {
 public:
  struct Options {
    size_t most_bytes = size_t{256} << 10;  ///< queue limit
    /// Longest wait of `finish` for a reader without progress, and in total.
    std::chrono::milliseconds patience{2000}, longest{10000};
  };
  explicit LineWriter(int fd) : LineWriter(fd, Options{}) {}
  LineWriter(int fd, const Options& options);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  /// Does not wait. A thread that is still writing ends when its lines are written, or with the process.
  ~LineWriter();

  /// `line` ends with a line break. Thread-safe.
  void add(std::string line, LineKind kind);
  /// Waits until everything is written, as long as there is progress, and at most `longest`. Returns false if lines
  /// remain; they may still be written later. If an earlier call timed out and there was no progress since, it does not
  /// wait again.
  bool finish();
  /// Returns errno of a failed write, in the first call after it; otherwise 0. Lines after a failure are dropped.
  int new_failure();

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with the thread, which may outlive this object
};

}  // namespace ashlar::io
