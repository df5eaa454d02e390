// Implements device.h and launches of kernels with the CUDA runtime. The host's compiler compiles this file, since it
// has no kernels.
#include <memory>

#include "kernels/cuda/host/cuda_state.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int64_t kPlainSharedBytes = 48 << 10;  // a kernel that uses more shared memory needs an opt-in

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const DeviceCalls& calls) : calls_(calls) {
    calls_.check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  // Any thread may wait for an event.
  void synchronize() override {
    calls_.use_device();
    calls_.check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }
  bool reached() override {
    calls_.use_device();
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    calls_.check(status, "cudaEventQuery");
    return true;
  }
  void* native() override { return event_; }

 private:
  const DeviceCalls& calls_;
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(Device& device, DeviceCalls& calls) : device_(device), calls_(calls) {
    calls_.check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() override {
    if (scratch_ != nullptr) {
      cudaStreamSynchronize(stream_);  // queued work may still use the memory
      device_.allocator(MemoryKind::kWorkspace).release(scratch_);
    }
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void synchronize() override { calls_.check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void record(Event& event) override {
    calls_.check(cudaEventRecord(static_cast<cudaEvent_t>(event.native()), stream_), "cudaEventRecord");
  }
  void wait_for(Event& event) override {
    calls_.check(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(event.native()), 0), "cudaStreamWaitEvent");
  }
  void* native() override { return stream_; }
  DeviceCalls& calls() { return calls_; }

  /// Asks the runtime once for each kernel and device, and again only for more: a call costs as much as a launch.
  void allow_shared_memory(const void* kernel, const Launch& launch) {
    int64_t& allowed = device_.state().shared_bytes_of_kernels[kernel];
    if (launch.shared_bytes <= allowed) return;
    calls_.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(launch.shared_bytes)),
                 launch.name);
    allowed = launch.shared_bytes;
  }

  void* scratch(int64_t bytes) {
    if (bytes <= scratch_bytes_) return scratch_;
    synchronize();  // queued work may still use the memory that is released next
    Allocator& memory = device_.allocator(MemoryKind::kWorkspace);
    memory.release(scratch_);
    scratch_ = nullptr;
    scratch_ = memory.allocate(bytes);
    scratch_bytes_ = bytes;
    return scratch_;
  }

 private:
  Device& device_;
  DeviceCalls& calls_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

CudaStream& own(Stream& stream) { return static_cast<CudaStream&>(stream); }
cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace

Device::Device(const DeviceOptions& options) : state_(std::make_unique<State>()) {
  state_->properties = open_device(options.ordinal);
  state_->ordinal = options.ordinal;
  state_->calls.set_ordinal(options.ordinal);
  state_->calls.name_device(name_of_device(state_->properties, options.ordinal));
  for (int kind = 0; kind < kNumMemoryKinds; ++kind)
    state_->allocators[static_cast<size_t>(kind)].emplace(state_->calls,
                                                          static_cast<MemoryKind>(kind) == MemoryKind::kPinned,
                                                          options.max_memory_bytes, state_->taken_bytes);
}

Device::~Device() = default;

std::string Device::description() const {
  const cudaDeviceProp& p = state_->properties;
  return str_cat("cuda: ", name_of_device(p, state_->ordinal), ", sm_", p.major, p.minor, ", ", p.multiProcessorCount,
                 " multiprocessors, ", p.totalGlobalMem >> 20, " MiB");
}

int64_t Device::max_shared_bytes() const { return static_cast<int64_t>(state_->properties.sharedMemPerBlockOptin); }

Allocator& Device::allocator(MemoryKind kind) { return *state_->allocators.at(static_cast<size_t>(kind)); }

std::unique_ptr<Stream> Device::make_stream() { return std::make_unique<CudaStream>(*this, state_->calls); }

std::unique_ptr<Event> Device::make_event() { return std::make_unique<CudaEvent>(state_->calls); }

void Device::copy(void* to, const void* from, int64_t bytes, Stream& stream) {
  state_->calls.queued("copy");
  state_->calls.check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, native(stream)),
                      "cudaMemcpyAsync");
}

void* Device::scratch(Stream& stream, int64_t bytes) { return own(stream).scratch(bytes); }

void internal::launch_kernel(Stream& stream, const Launch& launch, const void* kernel, void** arguments) {
  const DeviceCalls& calls = own(stream).calls();
  own(stream).calls().queued(launch.name);
  if (launch.shared_bytes > kPlainSharedBytes) own(stream).allow_shared_memory(kernel, launch);
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = native(stream);
  calls.check(cudaLaunchKernelExC(&config, kernel, arguments), launch.name);
}

}  // namespace ashlar::ASHLAR_DEV
