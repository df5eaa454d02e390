#include "data/read/prefetcher.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "core/base/error.h"

namespace ashlar::data {

Prefetcher::Prefetcher(std::unique_ptr<BatchSource> source, int64_t depth)
    : source_(std::move(source)), ring_(static_cast<size_t>(depth)) {
  ASHLAR_CHECK(depth >= 2, "expected a ring of at least 2 batches, got ", depth);
  thread_ = std::thread([this] { run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  freed_.notify_all();
  thread_.join();
}

void Prefetcher::run() {
  pthread_setname_np(pthread_self(), "ashlar-reader");  // thread name in the reports of hangs
  const auto depth = static_cast<int64_t>(ring_.size());
  try {
    for (;;) {
      Batch* slot = nullptr;
      {
        std::unique_lock lock(mutex_);
        freed_.wait(lock, [&] { return stopping_ || produced_ - consumed_ < depth; });
        if (stopping_) return;
        slot = &ring_[static_cast<size_t>(produced_ % depth)];
      }
      const bool more = source_->next(*slot);
      {
        const std::lock_guard lock(mutex_);
        produced_ += more ? 1 : 0;
        ended_ = !more;
      }
      filled_.notify_all();
      if (!more) return;
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    filled_.notify_all();
  }
}

const Batch* Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (holding_) {
    ++consumed_;
    holding_ = false;
    freed_.notify_all();
  }
  const auto ready = [&] { return produced_ > consumed_ || ended_ || failure_ != nullptr; };
  if (!ready()) {
    const auto start = std::chrono::steady_clock::now();
    filled_.wait(lock, ready);
    wait_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  if (produced_ > consumed_) {
    holding_ = true;
    return &ring_[static_cast<size_t>(consumed_ % static_cast<int64_t>(ring_.size()))];
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return nullptr;
}

double Prefetcher::take_data_wait_ms() {
  const std::lock_guard lock(mutex_);
  return std::exchange(wait_ms_, 0.0);
}

}  // namespace ashlar::data
