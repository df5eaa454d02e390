#include "core/io/line_writer.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/strings.h"
#include "core/io/writer_thread.h"

namespace ashlar::io {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct LineWriter::State {
  struct Line {
    std::string text;
    LineKind kind;
    int64_t left_out = 0;  ///< number of lines dropped directly before this line
  };
  int fd = -1;
  Options options;
  std::mutex mutex;
  std::condition_variable work, progress;
  std::deque<Line> lines;
  size_t bytes = 0;                 ///< total size of the texts in `lines`
  int64_t written_at_timeout = -1;  ///< value of `written` when `finish` last timed out; -1: never
  int64_t written = 0;              ///< total bytes written; grows only while the output is read
  int failure = 0;                  ///< errno of a failed write; 0: none
  bool reported = false, writing = false, started = false, stopping = false;
  bool alone = false;  ///< true: there is no writer thread, because the system refused to create one

  int64_t left_out = 0;  ///< number of lines dropped after the last entry of `lines`

  bool waiting() const { return !lines.empty() || left_out > 0; }
  void drop_excess();
  Line pop();
  void write_available();
  void run();
};

void LineWriter::State::drop_excess() {
  while (bytes > options.most_bytes && lines.size() > 1) {
    const auto least =
        std::min_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.kind < b.kind; });
    int64_t& counted_at = least + 1 == lines.end() ? left_out : (least + 1)->left_out;
    counted_at += least->left_out + (least->kind == LineKind::kStatus ? 0 : 1);
    bytes -= least->text.size();
    lines.erase(least);
  }
}

LineWriter::State::Line LineWriter::State::pop() {
  Line line{.text = "", .kind = LineKind::kInfo};
  if (lines.empty()) {
    line.left_out = std::exchange(left_out, 0);
  } else {
    line = std::move(lines.front());
    lines.pop_front();
    bytes -= line.text.size();
  }
  if (line.left_out > 0) line.text = to_line(LinesLeftOut{.lines = line.left_out, .fd = fd}) + "\n" + line.text;
  return line;
}

/// Used if there is no writer thread. Writes lines while the descriptor is ready. A line that was started is completed.
void LineWriter::State::write_available() {
  pollfd ready{fd, POLLOUT, 0};
  while (waiting() && failure == 0 && ::poll(&ready, 1, 0) == 1) {
    const Line line = pop();
    for (std::string_view rest = line.text; !rest.empty() && failure == 0;) {
      const size_t n = write_some(fd, rest);
      if (n == 0) failure = errno;
      rest.remove_prefix(n);
      written += static_cast<int64_t>(n);
    }
  }
}

void LineWriter::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [&] { return waiting() || stopping; });
    if (!waiting()) return;
    const Line line = pop();
    writing = true;
    for (std::string_view rest = line.text; !rest.empty() && failure == 0;) {
      lock.unlock();
      const size_t n = write_some(fd, rest);
      const int why = errno;
      lock.lock();
      if (n == 0) failure = why;
      rest.remove_prefix(n);
      written += static_cast<int64_t>(n);
      progress.notify_all();
    }
    writing = false;
    progress.notify_all();
  }
}

std::string to_line(const LinesLeftOut& event) {
  return str_cat("(", event.lines, event.lines == 1 ? " line was" : " lines were", " left out here: standard ",
                 event.fd == 2 ? "error" : "output", " was not read; the run did not wait)");
}

LineWriter::LineWriter(int fd, const Options& options) : state_(std::make_shared<State>()) {
  state_->fd = fd;
  state_->options = options;
}

LineWriter::~LineWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->work.notify_all();
}

void LineWriter::add(std::string line, LineKind kind) {
  const std::lock_guard lock(state_->mutex);
  State& s = *state_;
  if (s.failure != 0) return;
  if (!s.started) {
    try {
      // The name does not begin with "ashlar-": stalls are detected in all threads with that prefix, but a wait until
      // the output is read is no stall.
      start_writer("lines", [state = state_] { state->run(); });
      s.started = true;
      s.alone = false;
    } catch (const std::system_error&) {
      s.alone = true;  // the next line tries again to start a thread
    }
  }
  if (kind == LineKind::kStatus && !s.lines.empty() && s.lines.back().kind == kind) {
    s.bytes -= s.lines.back().text.size();
    s.left_out += s.lines.back().left_out;
    s.lines.pop_back();
  }
  s.bytes += line.size();
  s.lines.push_back({.text = std::move(line), .kind = kind, .left_out = std::exchange(s.left_out, 0)});
  s.drop_excess();
  if (s.alone) return s.write_available();
  s.work.notify_all();
}

bool LineWriter::finish() {
  std::unique_lock lock(state_->mutex);
  State& s = *state_;
  const auto over = [&] { return (!s.waiting() && !s.writing) || s.failure != 0; };
  if (s.alone) s.write_available();
  const Clock::time_point end = Clock::now() + s.options.longest;
  while (!over()) {
    if (s.written == s.written_at_timeout) return false;
    const int64_t before = s.written;
    const Clock::time_point until = std::min(end, Clock::now() + s.options.patience);
    s.progress.wait_until(lock, until, [&] { return over() || s.written != before; });
    if (over() || (s.written != before && Clock::now() < end)) continue;
    s.written_at_timeout = s.written;
    return false;
  }
  return s.failure == 0;
}

int LineWriter::new_failure() {
  const std::lock_guard lock(state_->mutex);
  return state_->failure != 0 && !std::exchange(state_->reported, true) ? state_->failure : 0;
}

}  // namespace ashlar::io
