#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/log.h"

namespace ashlar::io {

/// A stream was not read for so long that lines had to be left out, at this place among the others.
struct LinesLeftOut {
  int64_t lines = 0;
  int fd = 1;  ///< standard output, or 2: standard error
};
std::string to_line(const LinesLeftOut& event);  ///< without a line break

/// Lines to a descriptor that nobody may be reading (a stopped terminal, a pager, a log collector that is stuck), for a
/// program that must not wait for it. `add` never waits: a thread writes what a bounded queue holds. When the queue is
/// full its oldest line of the least worth goes (LineKind), and at that place a line tells how many did; the order
/// stays. Where the system refuses the thread, a line is written when the descriptor takes it at once, else left out.
/// It is a thread, and not poll with short writes, for three reasons: a terminal that is ready may take less than it is
/// asked to, another process may fill the pipe between poll and write, and O_NONBLOCK would hold for everybody who
/// shares the descriptor.
class LineWriter {
 public:
  struct Options {
    size_t most_bytes = size_t{256} << 10;  ///< queued
    /// How long `finish` waits for a reader who takes nothing, and altogether.
    std::chrono::milliseconds patience{2000}, longest{10000};
  };
  explicit LineWriter(int fd) : LineWriter(fd, Options{}) {}
  LineWriter(int fd, const Options& options);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  /// Waits for nothing: a thread that is still writing ends with its lines or with the process.
  ~LineWriter();

  /// `line` ends with a line break. For any thread.
  void add(std::string line, LineKind kind);
  /// Waits until all is written, as long as the reader takes something, at most `longest`. False when lines are left;
  /// they may still be written later. Where it has waited in vain before, and nothing was taken since, it does not wait
  /// again.
  bool finish();
  /// Why a write failed, the first time that is asked after it did; 0 otherwise. What follows a failure is dropped.
  int new_failure();

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< the thread's, too: it may outlive this object
};

}  // namespace ashlar::io
