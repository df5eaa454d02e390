#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace ashlar::launch {

/// A queue of bytes for a file descriptor whose reader may stop reading (Ctrl-S, a pager) or exit. A thread writes the
/// bytes, so that the caller never blocks. The queue has room for about kMost bytes. Data that arrives while the queue
/// is full is dropped up to the end of a line; a line with the number of dropped lines (io::LinesLeftOut) takes its
/// place. The writing thread receives no signals.
class OutputQueue {
 public:
  static constexpr size_t kMost = 1 << 20;

  explicit OutputQueue(int fd);
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;
  ~OutputQueue();  ///< does not wait: a blocked thread ends with the process, and uses the descriptor until then

  void add(std::string_view bytes);
  bool full() const;        ///< a caller that must not lose bytes waits while this is true
  int error() const;        ///< errno of the write that stopped the output, or 0
  int64_t dropped() const;  ///< number of lines dropped because the queue was full
  /// Waits until everything is written or an error occurs. Returns false if that takes longer than `patience`.
  bool drain(std::chrono::milliseconds patience);

 private:
  struct State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> waiting;
    int fd = -1;
    size_t bytes = 0;
    int error = 0;
    int64_t dropped = 0, unreported = 0;
    bool stop = false;
    bool mid_line = false;  ///< the last byte, kept or dropped, is not the end of a line
    bool dropping = false;
    bool broken = false;  ///< the queued bytes before the dropped ones end within a line
  };
  static std::string kept(State& state, std::string_view bytes);
  static void write_all(State& state, int fd);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ashlar::launch
