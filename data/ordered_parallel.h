#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ashlar::data {

/// For i in [0, count): calls `produce(i, worker)` on several threads, and `consume(i, result)` in ascending order of
/// i. `worker` is the index of the thread, in [0, threads). A thread takes its next i only after its result is
/// consumed, so that at most one result per thread is in memory. `produce(i, worker, turn)` may call `turn()`, which
/// returns when the results of all smaller i are consumed. The code after `turn()` therefore runs on one thread at a
/// time, in order of i. If calls throw, the exception of the smallest i is rethrown and no later result is consumed, so
/// that errors do not depend on the number of threads. Throws resource_error when the system cannot create a thread.
template <typename Produce, typename Consume>
void ordered_parallel(int threads, int64_t count, const Produce& produce, const Consume& consume) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable turn_changed;
  int64_t turn = 0;
  std::exception_ptr failure;
  struct Abandoned {};  // thrown by turn() to stop `produce` after a smaller i has failed
  const auto run = [&](int64_t i, int worker) {
    if constexpr (std::is_invocable_v<Produce, int64_t, int>) {
      return produce(i, worker);
    } else {
      return produce(i, worker, [&, i] {
        std::unique_lock lock(mutex);
        turn_changed.wait(lock, [&] { return turn == i || failure != nullptr; });
        if (failure != nullptr) throw Abandoned{};
      });
    }
  };
  const auto work = [&](int worker) {
    for (int64_t i = next++; i < count; i = next++) {
      std::exception_ptr error;
      decltype(run(i, worker)) result{};
      try {
        result = run(i, worker);
      } catch (...) {
        error = std::current_exception();
      }
      std::unique_lock lock(mutex);
      turn_changed.wait(lock, [&] { return turn == i || failure != nullptr; });
      if (failure != nullptr) return;
      if (error == nullptr) {
        // `consume` needs no lock: only the thread whose i is next gets here. The other threads continue to produce.
        lock.unlock();
        try {
          consume(i, std::move(result));
        } catch (...) {
          error = std::current_exception();
        }
        lock.lock();
      }
      ++turn;
      failure = error;
      turn_changed.notify_all();
      if (failure != nullptr) return;
    }
  };
  std::vector<std::thread> pool;
  try {
    for (int w = 1; w < threads && w < count; ++w) pool.emplace_back(work, w);
    work(0);
  } catch (const std::system_error& error) {
    const std::lock_guard lock(mutex);
    failure = std::make_exception_ptr(resource_error(
        "threads", "the system refused thread ", pool.size() + 2, " of ", threads, " (", error.code().message(),
        "); use fewer threads, or raise the limits shown by `ulimit -u` and `ulimit -v`"));
    turn_changed.notify_all();
  }
  for (std::thread& t : pool) t.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace ashlar::data
