#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/backend/backend.h"
#include "tests/gpu_emulator/views.h"
#include "tests/gpu_emulator/virtual_gpu.h"

namespace ashlar::testing {

/// Another backend behind the streams of a virtual GPU. Calls are queued; when the host waits for a stream or asks
/// for an event, calls of all streams run in random order (each stream's own in order, events obeyed) until what was
/// asked for is reached. What this finds, at the moment of the call and whatever the random order:
/// - A missing wait, or memory used again too early: two calls that touch the same memory, one of them writing, without
///   an event, or a wait of the host, between them. A Bug that names both (vector clocks, one a stream and one for the
///   host).
/// - A host that touches device memory: it is closed while no call runs, and the process ends with a line that
///   names the call which touched the place last and the ones queued last.
/// - A call that writes beyond a block, and work that reads fresh or released memory: it holds NaN.
/// - A host that reads the target of a copy before waiting for it: the target is NaN until the copy has run.
/// - A host that changes the source of a copy before the copy has run: a Bug when it runs.
/// Views say everything about a call: ConstViews are what it reads, MutViews what it writes (views()).
class DeferredBackend : public Backend {
 public:
  explicit DeferredBackend(std::unique_ptr<Backend> inner, uint64_t seed = 1);
  ~DeferredBackend() override;

  std::string description() const override;
  double measure_peak(DType dtype, double seconds) override { return inner_->measure_peak(dtype, seconds); }
  int64_t num_gemms() const override { return inner_->num_gemms(); }
  Allocator& allocator(MemoryKind kind) override;
  std::unique_ptr<Stream> make_stream() override { return gpu_.make_stream(); }
  std::unique_ptr<Event> make_event() override;
  void copy_to_host(ConstView device, void* host, Stream& stream) override;
  void copy_from_host(const void* host, MutView device, Stream& stream) override;
  DType logits_dtype(DType storage) const override { return inner_->logits_dtype(storage); }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override {
    return inner_->loss_chunk_rows(N, V, storage);
  }

  /// Waits of the host that found work still to be done, with what they waited for: "stream 0 at adamw (call 81 ...)".
  const std::vector<std::string>& host_waits() const { return gpu_.queues().host_waits(); }
  void forget_host_waits() { gpu_.queues().forget_host_waits(); }
  /// Of every allocation and release since the last call: equal when the addresses repeat.
  uint64_t take_address_hash() { return gpu_.memory().take_hash(); }
  emulator::VirtualGpu& gpu() { return gpu_; }
  int64_t num_calls() const { return gpu_.queues().num_calls(); }
  /// Told of each call on the first stream as it is queued, by name, and of its waits for others ("wait").
  void observe(std::function<void(const std::string& name)> observer);

 private:
#define ASHLAR_DEFER(name, Args)                                                                                       \
  void launch(const Args& args, Stream& stream) override {                                                             \
    gpu_.queue(                                                                                                        \
        #name, [this, args] { inner_->name(args, *inner_stream_); }, stream,                                           \
        [&](const auto& touch) {                                                                                       \
          for_each_view(args, [&](const auto& view) { touch(view, std::is_same_v<decltype(view), const MutView&>); }); \
        });                                                                                                            \
  }
  ASHLAR_KERNELS(ASHLAR_DEFER)
#undef ASHLAR_DEFER

  std::unique_ptr<Backend> inner_;
  std::unique_ptr<Stream> inner_stream_;
  emulator::VirtualGpu gpu_;
  std::array<std::optional<emulator::DeviceAllocator>, kNumMemoryKinds> memory_;
};

}  // namespace ashlar::testing
