#include "launch/commands/output_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/strings.h"
#include "core/io/line_writer.h"
#include "core/io/writer_thread.h"

namespace ashlar::launch {

namespace {

/// Writes the text. Returns 0, or errno if not everything was written.
int write_to(int fd, std::string_view text) {
  while (!text.empty()) {
    const size_t n = io::write_some(fd, text);
    if (n == 0) return errno;
    text.remove_prefix(n);
  }
  return 0;
}

}  // namespace

OutputQueue::OutputQueue(int fd) {
  state_->fd = fd;
  io::start_writer("ashlar-output", [state = state_, fd] { write_all(*state, fd); });
}

OutputQueue::~OutputQueue() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

/// Returns the part of `bytes` that goes into the queue. If lines were dropped before this part, it begins with a line
/// that gives their number.
std::string OutputQueue::kept(State& state, std::string_view bytes) {
  if (!state.dropping) {
    if (state.bytes < kMost) return std::string(bytes);
    state.dropping = true;
    state.broken = state.mid_line;
  }
  // Drops to the end of the current line, or everything while the queue is full.
  size_t drop = state.mid_line ? std::min(bytes.find('\n'), bytes.size() - 1) + 1 : 0;
  if (state.bytes >= kMost) drop = bytes.size();
  const auto lines = std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(drop), '\n');
  state.dropped += lines;
  state.unreported += lines;
  if (drop > 0) state.mid_line = bytes[drop - 1] != '\n';
  bytes.remove_prefix(drop);
  if (bytes.empty() || state.mid_line) return "";
  state.dropping = false;
  return str_cat(state.broken ? "\n" : "",
                 io::to_line(io::LinesLeftOut{.lines = std::exchange(state.unreported, 0), .fd = state.fd}), "\n",
                 bytes);
}

void OutputQueue::add(std::string_view bytes) {
  const std::lock_guard lock(state_->mutex);
  if (state_->error != 0 || bytes.empty()) return;
  std::string text = kept(*state_, bytes);
  if (text.empty()) return;
  state_->mid_line = text.back() != '\n';
  state_->bytes += text.size();
  state_->waiting.push_back(std::move(text));
  state_->changed.notify_all();
}

bool OutputQueue::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes >= kMost && state_->error == 0;
}

int OutputQueue::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

int64_t OutputQueue::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

bool OutputQueue::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->bytes == 0; });
}

void OutputQueue::write_all(State& state, int fd) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.stop || !state.waiting.empty(); });
    if (state.waiting.empty()) return;
    const std::string bytes = std::move(state.waiting.front());
    state.waiting.pop_front();
    lock.unlock();
    const int error = write_to(fd, bytes);
    lock.lock();
    state.bytes -= bytes.size();
    if (error != 0) {
      state.error = error;
      state.waiting.clear();
      state.bytes = 0;
    }
    state.changed.notify_all();
  }
}

}  // namespace ashlar::launch
