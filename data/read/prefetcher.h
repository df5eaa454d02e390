#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/read/batch_stream.h"

namespace ashlar::data {

/// Runs the reader thread of a process, which reads micro-batches from a source ahead of the trainer into a ring of
/// `depth` batches. If the source throws while it reads a batch, the call of next() that should return this batch
/// rethrows the exception, and so does every later call. The destructor stops and joins the thread.
class Prefetcher {
 public:
  explicit Prefetcher(std::unique_ptr<BatchSource> source, int64_t depth = 4);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the next micro-batch, or null at the end of the source. The batch is valid until the next call.
  const Batch* next();

  /// Returns the milliseconds that next() has waited for data since the last call of take_data_wait_ms.
  double take_data_wait_ms();

 private:
  void run();

  std::unique_ptr<BatchSource> source_;
  std::vector<Batch> ring_;
  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  int64_t produced_ = 0;  ///< number of batches put into the ring
  int64_t consumed_ = 0;  ///< number of batches that the consumer no longer uses
  bool holding_ = false;  ///< true while the consumer uses the batch with index `consumed_`
  bool ended_ = false, stopping_ = false;
  std::exception_ptr failure_;
  double wait_ms_ = 0;
  std::thread thread_;
};

}  // namespace ashlar::data
