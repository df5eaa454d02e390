// The device of host.h through the CUDA runtime. Compiled by nvcc alone.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/dev/host.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kSlab = int64_t{64} << 20;
constexpr int64_t kPlainSharedBytes = 48 << 10;  // more is opted into, kernel by kernel

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation)
    throw resource_error("cuda", what, ": ", cudaGetErrorString(status), "; choose a smaller micro-batch or model");
  throw Bug(str_cat("[cuda] ", what, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status)));
}

class CudaEvent final : public Event {
 public:
  CudaEvent() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void synchronize() override { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check_cuda(status, "cudaEventQuery");
    return true;
  }
  void* native() override { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// First fit in slabs of device (or pinned) memory, which are never given back: a step that repeats its sizes gets the
/// same addresses and makes no call. A block given back may be handed out while queued work still uses it; whoever uses
/// it then is ordered behind that work, by its stream or an event.
class SlabAllocator final : public Allocator {
 public:
  SlabAllocator(bool pinned, int64_t max_bytes) : pinned_(pinned), max_bytes_(max_bytes) {}
  ~SlabAllocator() override {
    for (const Slab& slab : slabs_) pinned_ ? cudaFreeHost(slab.base) : cudaFree(slab.base);
  }
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  void* allocate(int64_t bytes) override {
    const int64_t size = std::max<int64_t>((bytes + kAlign - 1) / kAlign * kAlign, kAlign);
    for (size_t s = 0;; ++s) {
      if (s == slabs_.size()) grow(size);
      Slab& slab = slabs_[s];
      for (auto it = slab.free.begin(); it != slab.free.end(); ++it) {
        const auto [offset, room] = *it;
        if (room < size) continue;
        slab.free.erase(it);
        if (room > size) slab.free.emplace(offset + size, room - size);
        char* const block = slab.base + offset;
        live_.emplace(block, Live{.slab = s, .size = size});
        used_ += size;
        return block;
      }
    }
  }

  void release(void* block) override {
    if (block == nullptr) return;
    const auto found = live_.find(static_cast<char*>(block));
    ASHLAR_CHECK(found != live_.end(), "a block that was not handed out");
    Slab& slab = slabs_[found->second.slab];
    int64_t offset = static_cast<char*>(block) - slab.base, size = found->second.size;
    used_ -= size;
    live_.erase(found);
    auto next = slab.free.lower_bound(offset);
    if (next != slab.free.end() && next->first == offset + size) {
      size += next->second;
      next = slab.free.erase(next);
    }
    if (next != slab.free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      std::prev(next)->second += size;
    } else {
      slab.free.emplace(offset, size);
    }
  }

  int64_t used_bytes() const override { return used_; }
  int64_t high_water_bytes() const override { return taken_; }
  int64_t num_system_calls() const override { return static_cast<int64_t>(slabs_.size()); }

 private:
  struct Slab {
    char* base;
    std::map<int64_t, int64_t> free;  ///< offset -> bytes, never adjacent
  };
  struct Live {
    size_t slab;
    int64_t size;
  };

  void grow(int64_t size) {
    const int64_t bytes = (size + kSlab - 1) / kSlab * kSlab;
    if (max_bytes_ > 0 && taken_ + bytes > max_bytes_)
      throw resource_error("cuda", bytes, " more bytes of ", pinned_ ? "pinned" : "device", " memory, ", taken_,
                           " are taken, ", max_bytes_, " allowed; choose a smaller micro-batch or model");
    void* base = nullptr;
    check_cuda(
        pinned_ ? cudaMallocHost(&base, static_cast<size_t>(bytes)) : cudaMalloc(&base, static_cast<size_t>(bytes)),
        pinned_ ? "cudaMallocHost" : "cudaMalloc");
    slabs_.push_back({.base = static_cast<char*>(base), .free = {{0, bytes}}});
    taken_ += bytes;
  }

  const bool pinned_;
  const int64_t max_bytes_;
  std::vector<Slab> slabs_;
  std::unordered_map<char*, Live> live_;
  int64_t used_ = 0, taken_ = 0;
};

}  // namespace

struct Device::State {
  cudaDeviceProp properties{};
  std::array<std::optional<SlabAllocator>, kNumMemoryKinds> allocators;
};

namespace {

class CudaStream final : public Stream {
 public:
  explicit CudaStream(Device& device) : device_(device) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() override {
    if (scratch_ != nullptr) {
      cudaStreamSynchronize(stream_);  // what is given back goes to whoever asks next
      device_.allocator(MemoryKind::kWorkspace).release(scratch_);
    }
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void record(Event& event) override {
    check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event.native()), stream_), "cudaEventRecord");
  }
  void wait_for(Event& event) override {
    check_cuda(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event.native())), "cudaStreamWaitEvent");
  }
  void* native() override { return stream_; }

  void* scratch(int64_t bytes) {
    if (bytes <= scratch_bytes_) return scratch_;
    synchronize();  // queued work uses what is given back
    Allocator& memory = device_.allocator(MemoryKind::kWorkspace);
    memory.release(scratch_);
    scratch_ = memory.allocate(bytes);
    scratch_bytes_ = bytes;
    return scratch_;
  }

 private:
  Device& device_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace

Device::Device(const DeviceOptions& options) : state_(std::make_unique<State>()) {
  check_cuda(cudaSetDevice(options.ordinal), "cudaSetDevice");
  check_cuda(cudaGetDeviceProperties(&state_->properties, options.ordinal), "cudaGetDeviceProperties");
  for (int kind = 0; kind < kNumMemoryKinds; ++kind)
    state_->allocators[static_cast<size_t>(kind)].emplace(static_cast<MemoryKind>(kind) == MemoryKind::kPinned,
                                                          options.max_memory_bytes);
}

Device::~Device() = default;

std::string Device::description() const {
  const cudaDeviceProp& p = state_->properties;
  return str_cat("cuda: ", p.name, ", sm_", p.major, p.minor, ", ", p.multiProcessorCount, " multiprocessors, ",
                 p.totalGlobalMem >> 20, " MiB");
}

Allocator& Device::allocator(MemoryKind kind) { return *state_->allocators.at(static_cast<size_t>(kind)); }

std::unique_ptr<Stream> Device::make_stream() { return std::make_unique<CudaStream>(*this); }

std::unique_ptr<Event> Device::make_event() { return std::make_unique<CudaEvent>(); }

void Device::copy(void* to, const void* from, int64_t bytes, Stream& stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, native(stream)),
             "cudaMemcpyAsync");
}

void* Device::scratch(Stream& stream, int64_t bytes) { return static_cast<CudaStream&>(stream).scratch(bytes); }

void internal::launch_kernel(Stream& stream, const Launch& launch, const void* kernel, void** arguments) {
  if (launch.shared_bytes > kPlainSharedBytes)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(launch.shared_bytes)),
               launch.name);
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = native(stream);
  check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), launch.name);
}

}  // namespace ashlar::ASHLAR_DEV
