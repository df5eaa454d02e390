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

/// Bytes on their way to a descriptor whose reader may stop (Ctrl-S, a pager) or go away: a thread writes them, so that
/// whoever adds never waits. Holds about kMost bytes; what comes while it is full is dropped up to the end of a line,
/// at whose place a line tells how many were (io::LinesLeftOut). Its thread takes no signals.
class OutputQueue {
 public:
  static constexpr size_t kMost = 1 << 20;

  explicit OutputQueue(int fd);
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;
  ~OutputQueue();  ///< waits for nothing: a thread that is stuck ends with the process

  void add(std::string_view bytes);
  bool full() const;        ///< who must not lose a byte waits while it is
  int error() const;        ///< 0, or why nothing more is written
  int64_t dropped() const;  ///< lines that found it full
  /// Waits until all is written, or an error has come; false: not within `patience`.
  bool drain(std::chrono::milliseconds patience);

 private:
  struct State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> waiting;
    int fd = -1;
    size_t bytes = 0;
    int error = 0;
    int64_t dropped = 0, untold = 0;
    bool stop = false;
    bool mid_line = false;  ///< the last byte that was kept, or dropped, is not the end of a line
    bool dropping = false;
    bool broken = false;  ///< what was kept before that ends within a line
  };
  static std::string kept(State& state, std::string_view bytes);
  static void write_all(State& state, int fd);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ashlar::launch
