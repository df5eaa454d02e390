#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "core/device/allocator.h"
#include "core/device/stream.h"
#include "core/tensor/view.h"
#include "tests/gpu_emulator/access_order.h"
#include "tests/gpu_emulator/device_memory.h"
#include "tests/gpu_emulator/emulator.h"
#include "tests/gpu_emulator/work_queues.h"

namespace ashlar::emulator {

/// A GPU as the host sees it: memory that only its work may touch, streams, events, copies and launches, with the
/// rules of the CUDA runtime. Work runs when the host waits or asks, in an order left to chance (WorkQueues).
/// Not thread-safe: one thread drives it.
class VirtualGpu {
 public:
  struct Options {
    std::string name = "device 0";
    int64_t memory_bytes = 0;  ///< 0 = what an address range holds
    uint64_t seed = 1;         ///< of the order of streams
    StreamOrder order = StreamOrder::kRandom;
    Schedule schedule = {};  ///< of the threads of a kernel
    /// Copies from and to host memory that is not pinned are queued like the others; CUDA copies such a source at the
    /// call and waits for such a target.
    bool all_host_memory_is_pinned = false;
    /// Judge each access of kernels that are compiled for it (Machine::watch).
    bool watched = false;
    double patience_sec = 120;  ///< WorkQueues::Options
  };

  explicit VirtualGpu(Options options);
  ~VirtualGpu();
  VirtualGpu(const VirtualGpu&) = delete;
  VirtualGpu& operator=(const VirtualGpu&) = delete;

  const Options& options() const { return options_; }
  DeviceMemory& memory() { return memory_; }
  DeviceMemory& pinned() { return pinned_; }
  WorkQueues& queues() { return queues_; }
  const WorkQueues& queues() const { return queues_; }

  /// A stream that is destroyed leaves its work to run; an event that was never recorded counts as reached.
  std::unique_ptr<Stream> make_stream();
  std::unique_ptr<Event> make_event();
  /// The host waits for all streams.
  void synchronize();

  /// Queues a kernel. Its faults come out of the wait that makes it run.
  void launch(Grid grid, Stream& stream);
  /// Queues what works on device memory like a kernel, but is none: a vendor's library, or another backend.
  void queue(std::string_view name, std::function<void()> run, Stream& stream) {
    queue(name, std::move(run), stream, [](const auto&) {});
  }
  /// The same for work that reads and writes what `visit` tells, as in `announce`.
  template <typename Visit>
  void queue(std::string_view name, std::function<void()> run, Stream& stream, const Visit& visit) {
    queues_.begin(name, index_of(stream));
    visit([this](const ConstView& view, bool writes) { accesses_.touch(view, writes); });
    push_work(std::move(run));
  }
  /// Queues work that may say "not yet" (WorkQueues::push_step), and says true when it is done.
  void queue_step(std::string_view name, std::function<bool()> step, Stream& stream);
  /// The work just queued reads or writes these bytes; an error of the call in hand as in `queue`.
  void touch(const ConstView& view, bool writes) { accesses_.touch(view, writes); }
  /// Queues a function of the host: it may neither touch device memory nor call the device.
  void host_function(std::string_view name, std::function<void()> run, Stream& stream);
  /// Copies bytes in the direction that the addresses say. Host memory belongs to the copy until the stream has passed
  /// it: a target holds NaN until then, and a source that changes is a Bug of the wait that finds it.
  struct Copy {
    const char* name = "copy";
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
  };
  void copy(const Copy& copy, Stream& stream);

  /// The work just queued by `name` reads and writes what `visit` tells: visit(touch), touch(view, writes). Throws a
  /// Bug that names this call and an earlier one which nothing orders before it.
  template <typename Visit>
  void announce(std::string_view name, Stream& stream, const Visit& visit) {
    queues_.begin(name, index_of(stream));
    visit([this](const ConstView& view, bool writes) { accesses_.touch(view, writes); });
    queues_.push({});
  }

  int64_t num_launches() const { return num_launches_; }
  /// What kernels asked of memory, where they are watched; the caller may clear it.
  Machine& machine() { return machine_; }
  /// Which of a device's streams it is.
  static int index_of(Stream& stream);

 private:
  class QueuedStream;
  class QueuedEvent;

  void push_work(std::function<void()> run);
  bool is_async(const void* host, int64_t bytes) const;

  const Options options_;
  WorkQueues queues_;
  AccessOrder accesses_;
  DeviceMemory memory_, pinned_;
  Machine machine_;
  int64_t num_launches_ = 0;
  std::list<std::pair<const char*, int64_t>> sources_;  ///< host memory of copies that have not run
};

/// One kind of memory of a device, for reports.
class DeviceAllocator final : public Allocator {
 public:
  explicit DeviceAllocator(DeviceMemory& memory) : memory_(memory) {}
  void* allocate(int64_t bytes) override;
  void release(void* block) override;
  int64_t used_bytes() const override { return used_; }
  int64_t high_water_bytes() const override { return high_water_; }
  int64_t num_system_calls() const override { return 0; }

 private:
  DeviceMemory& memory_;
  std::map<void*, int64_t> blocks_;
  int64_t used_ = 0, high_water_ = 0;
};

}  // namespace ashlar::emulator
