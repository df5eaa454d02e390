#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/fields.h"
#include "tests/support/deferred/guarded_memory.h"

namespace ashlar::testing {

/// Another backend behind streams that are really asynchronous. Calls are queued; whenever the host waits for a stream
/// or asks for an event, calls of all streams run in random order (each stream's own in order, events obeyed) until
/// what was asked for is reached. What this finds, at the moment of the call and whatever the random order:
/// - A missing wait, or memory used again too early: two calls that touch the same memory, one of them writing, without
///   an event, or a wait of the host, between them. A Bug that names both (vector clocks, one a stream and one for the
///   host).
/// - A host that touches device memory: it is closed while no call runs, and the process ends with a line that
///   names the call which touched the place last and the one queued last.
/// - A host that reads the target of a copy before waiting for it: the target is NaN until the copy has run.
/// - A host that changes the source of a copy before the copy has run: a Bug when it runs.
/// Views say everything about a call: ConstViews are what it reads, MutViews what it writes (fields.h).
class DeferredBackend final : public Backend {
 public:
  explicit DeferredBackend(std::unique_ptr<Backend> inner, uint64_t seed = 1);
  ~DeferredBackend() override;

  std::string description() const override;
  double measure_peak(DType dtype, double seconds) override { return inner_->measure_peak(dtype, seconds); }
  int64_t num_gemms() const override { return inner_->num_gemms(); }
  Allocator& allocator(MemoryKind kind) override { return *memory_[static_cast<size_t>(kind)]; }
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy_to_host(ConstView device, void* host, Stream& stream) override;
  void copy_from_host(const void* host, MutView device, Stream& stream) override;
  DType logits_dtype(DType storage) const override { return inner_->logits_dtype(storage); }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override {
    return inner_->loss_chunk_rows(N, V, storage);
  }

  /// Waits of the host that found work still to be done, with what they waited for: "stream 0 at adamw (call 81)".
  const std::vector<std::string>& host_waits() const { return host_waits_; }
  void forget_host_waits() { host_waits_.clear(); }
  /// Of every allocation and release since the last call: equal when the addresses repeat.
  uint64_t take_address_hash();
  int64_t num_calls() const { return calls_; }
  /// Told of each call on the first stream as it is queued, by name, and of its waits for others ("wait").
  void observe(std::function<void(const std::string& name)> observer) { observer_ = std::move(observer); }

 private:
  class DeferredStream;
  class DeferredEvent;
  using Clock = std::vector<uint64_t>;
  struct Entry {
    std::function<void()> run;  ///< empty: waits only
    std::string name;
    int wait_stream = -1;  ///< runs when this stream has run so many entries
    uint64_t wait_count = 0;
  };
  struct Queue {
    std::deque<Entry> entries;
    uint64_t queued = 0, run = 0;
    Clock clock;
  };
  struct Access {
    uintptr_t begin, end;
    int64_t row_bytes, stride_bytes;  ///< of a matrix with gaps
    bool writes;
    int stream;
    uint64_t time;
    std::string call;
  };

#define ASHLAR_DEFER(name, Args)                                                                                    \
  void launch(const Args& args, Stream& stream) override {                                                          \
    const int s = begin(#name, stream);                                                                             \
    for_each_view(args, [&](const auto& view) { touch(s, view, std::is_same_v<decltype(view), const MutView&>); }); \
    push(s, [this, args] { inner_->name(args, *inner_stream_); });                                                  \
  }
  ASHLAR_KERNELS(ASHLAR_DEFER)
#undef ASHLAR_DEFER

  int begin(const char* name, Stream& stream);
  void touch(int stream, const ConstView& view, bool writes);
  void touch(int stream, const Access& access);
  bool known_to(int stream, const Access& access) const;
  std::string known_of(const void* at) const;
  void push(int stream, std::function<void()> run);
  bool runnable(const Queue& queue) const;
  void run_until(int stream, uint64_t count);
  void wait_of_host(int stream, uint64_t count, const Clock& clock);

  std::unique_ptr<Backend> inner_;
  std::unique_ptr<Stream> inner_stream_;
  std::unique_ptr<GuardedRegion> region_;
  std::array<std::unique_ptr<Allocator>, kNumMemoryKinds> memory_;
  std::function<void(const std::string&)> observer_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  Clock host_;
  std::string call_;  ///< the one being queued
  int64_t calls_ = 0;
  std::unordered_map<uintptr_t, std::vector<Access>> pages_;
  std::vector<std::string> host_waits_;
  std::list<std::pair<const char*, int64_t>> sources_;  ///< host memory of copies that have not run
};

}  // namespace ashlar::testing
