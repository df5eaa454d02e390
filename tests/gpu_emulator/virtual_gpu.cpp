#include "tests/gpu_emulator/virtual_gpu.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ashlar::emulator {

namespace {

uint64_t checksum(const void* data, int64_t bytes) {
  uint64_t sum = 1469598103934665603ULL;
  for (int64_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ULL;
  return sum;
}

ConstView bytes_of(const void* data, int64_t bytes) { return {data, DType::kUInt8, 1, bytes, bytes}; }

}  // namespace

class VirtualGpu::QueuedEvent final : public Event {
 public:
  explicit QueuedEvent(VirtualGpu& gpu) : gpu_(gpu) {}
  void synchronize() override { gpu_.queues_.wait_of_host(mark); }
  bool reached() override { return gpu_.queues_.reached(mark); }
  void* native() override { return this; }

  WorkQueues::Mark mark;

 private:
  VirtualGpu& gpu_;
};

class VirtualGpu::QueuedStream final : public Stream {
 public:
  explicit QueuedStream(VirtualGpu& gpu) : index_(gpu.queues_.add_stream()), gpu_(gpu) {}
  void synchronize() override { gpu_.queues_.wait_of_host(gpu_.queues_.mark(index_)); }
  void record(Event& event) override { static_cast<QueuedEvent&>(event).mark = gpu_.queues_.mark(index_); }
  void wait_for(Event& event) override { gpu_.queues_.wait_for(index_, static_cast<QueuedEvent&>(event).mark); }
  void* native() override { return this; }
  int index() const { return index_; }

 private:
  const int index_;
  VirtualGpu& gpu_;
};

VirtualGpu::VirtualGpu(Options options)
    : options_(std::move(options)),
      queues_({.seed = options_.seed,
               .order = options_.order,
               .before = [this] { memory_.open(); },
               .after = [this] { memory_.close(); },
               .patience_sec = options_.patience_sec}),
      accesses_(queues_),
      memory_({.owner = options_.name.c_str(),
               .max_bytes = options_.memory_bytes,
               .describe = [this](const void* at) { return accesses_.known_of(at); },
               .in_use = [this](const void* at, int64_t bytes) { return accesses_.in_use(at, bytes); },
               .running = [this] { return queues_.running() == nullptr ? std::string() : queues_.running()->name; }}),
      pinned_({.owner = "pinned memory",
               .for_kernels = false,
               .max_bytes = 0,
               .describe = {},
               .in_use = [this](const void* at, int64_t bytes) { return accesses_.in_use(at, bytes); }}) {
  memory_.close();
  if (!options_.watched) return;
  machine_.watch({.is_device_memory = is_device_memory,
                  .describe =
                      [](const void* at) {
                        const DeviceMemory* const owner = DeviceMemory::of(at);
                        return owner == nullptr ? std::string("memory of the host") : owner->describe(at);
                      },
                  .ordered = [this](int64_t earlier, int64_t later) { return queues_.ordered(earlier, later); }});
}

VirtualGpu::~VirtualGpu() = default;

std::unique_ptr<Stream> VirtualGpu::make_stream() { return std::make_unique<QueuedStream>(*this); }

std::unique_ptr<Event> VirtualGpu::make_event() { return std::make_unique<QueuedEvent>(*this); }

int VirtualGpu::index_of(Stream& stream) { return static_cast<QueuedStream&>(stream).index(); }

void VirtualGpu::synchronize() {
  for (int s = 0; s < queues_.num_streams(); ++s) queues_.wait_of_host(queues_.mark(s));
}

void VirtualGpu::launch(Grid grid, Stream& stream) {
  ++num_launches_;
  const WorkQueues::Call& call = queues_.begin(grid.name, index_of(stream));
  grid.launch = call.number;
  queues_.push([this, grid = std::move(grid), name = call.name] {
    machine_.run(grid, options_.schedule);
    DeviceMemory::check_all(name);
  });
}

void VirtualGpu::push_work(std::function<void()> run) {
  queues_.push([this, run = std::move(run), name = queues_.call().name] {
    run();
    DeviceMemory::check_all(name);
  });
}

void VirtualGpu::queue_step(std::string_view name, std::function<bool()> step, Stream& stream) {
  queues_.begin(name, index_of(stream));
  queues_.push_step([step = std::move(step), name = queues_.call().name] {
    if (!step()) return false;
    DeviceMemory::check_all(name);
    return true;
  });
}

void VirtualGpu::host_function(std::string_view name, std::function<void()> run, Stream& stream) {
  queues_.begin(name, index_of(stream));
  queues_.push_host_function(std::move(run));
}

bool VirtualGpu::is_async(const void* host, int64_t bytes) const {
  return options_.all_host_memory_is_pinned || pinned_.holds(host, bytes) || is_device_memory(host, bytes);
}

void VirtualGpu::copy(const Copy& copy, Stream& stream) {
  const auto on_host = [&](const void* at) {
    return !memory_.holds(at, copy.bytes) && DeviceMemory::of(at) != &memory_;
  };
  const bool to_host = on_host(copy.to), from_host = on_host(copy.from);
  const WorkQueues::Call& call = queues_.begin(copy.name, index_of(stream));
  // Pageable memory is the host's again when the call returns.
  if (!from_host || is_async(copy.from, copy.bytes)) accesses_.touch(bytes_of(copy.from, copy.bytes), false);
  if (!to_host || is_async(copy.to, copy.bytes)) accesses_.touch(bytes_of(copy.to, copy.bytes), true);
  const auto size = static_cast<size_t>(copy.bytes);
  if (from_host && !is_async(copy.from, copy.bytes)) {
    const auto* const from = static_cast<const char*>(copy.from);
    queues_.push([staged = std::vector<char>(from, from + size), to = copy.to] {
      if (!staged.empty()) std::memcpy(to, staged.data(), staged.size());
    });
  } else if (from_host) {
    const auto source = sources_.insert(sources_.end(), {static_cast<const char*>(copy.from), copy.bytes});
    queues_.push([this, copy, size, source, sum = checksum(copy.from, copy.bytes), name = call.name] {
      sources_.erase(source);
      ASHLAR_CHECK(checksum(copy.from, copy.bytes) == sum, name,
                   ": the host changed what is copied before the copy ran");
      std::memcpy(copy.to, copy.from, size);
    });
  } else {
    if (to_host && is_async(copy.to, copy.bytes)) {
      const auto* const begin = static_cast<const char*>(copy.to);
      const bool still_read = std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) {
        return source.first < begin + copy.bytes && begin < source.first + source.second;
      });
      if (!still_read) std::memset(copy.to, 0xFF, size);  // NaN, for those who do not wait
    }
    queues_.push([copy, size] { std::memcpy(copy.to, copy.from, size); });
    if (to_host && !is_async(copy.to, copy.bytes)) stream.synchronize();  // the host waits, as with CUDA
  }
}

void* DeviceAllocator::allocate(int64_t bytes) {
  void* const block = memory_.allocate(bytes);
  blocks_.emplace(block, bytes);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return block;
}

void DeviceAllocator::release(void* block) {
  if (block == nullptr) return;
  const auto found = blocks_.find(block);
  ASHLAR_CHECK(found != blocks_.end(), "[device memory] released to another kind of memory than it came from");
  used_ -= found->second;
  memory_.release(block);
  blocks_.erase(found);
}

}  // namespace ashlar::emulator
