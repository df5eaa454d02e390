#include "launch/commands/output_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launch/writer_thread.h"

namespace ashlar::launch {

namespace {

/// 0, or why not all of it was written.
int write_to(int fd, std::string_view text) {
  while (!text.empty()) {
    const size_t n = write_some(fd, text);
    if (n == 0) return errno;
    text.remove_prefix(n);
  }
  return 0;
}

}  // namespace

OutputQueue::OutputQueue(int fd) {
  start_writer("ashlar-output", [state = state_, fd] { write_all(*state, fd); });
}

OutputQueue::~OutputQueue() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

void OutputQueue::add(std::string_view bytes) {
  const std::lock_guard lock(state_->mutex);
  if (state_->error != 0) return;
  if (state_->bytes >= kMost) {
    state_->dropped += std::count(bytes.begin(), bytes.end(), '\n');
    return;
  }
  state_->waiting.emplace_back(bytes);
  state_->bytes += bytes.size();
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
