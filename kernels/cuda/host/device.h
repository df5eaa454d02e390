#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/device/allocator.h"
#include "core/device/stream.h"
#include "kernels/cuda/dev/kernel.h"

/// What the host side of the backend may ask of a device: memory, streams, copies; launches are in launch_kernel.h. The
/// CUDA runtime does it (device_cuda.cpp), or the device that a test was compiled for.
namespace ashlar::ASHLAR_DEV {

/// Which device, and how it is to be used.
struct DeviceOptions {
  int ordinal = 0;                      ///< among the visible ones
  int64_t max_memory_bytes = 0;         ///< 0 = what the device has
#if !defined(ASHLAR_ON_CUDA)            // an emulated device
  std::string schedule = "fifo";        ///< of a kernel's threads: fifo, lifo, random or pct
  std::string stream_order = "random";  ///< of what streams leave open: random, or at_once (each call as it is queued)
  uint64_t seed = 1;                    ///< of both
  emulator::KernelSubstitute substitute = {};  ///< what runs in the place of kernels
#endif
};

class CublasLtPlans;

/// A device with its memory and streams. Not thread-safe: one thread drives it.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string description() const;
  Allocator& allocator(MemoryKind kind);
  std::unique_ptr<Stream> make_stream();
  std::unique_ptr<Event> make_event();
  /// Queued; the addresses tell the direction. Pinned host memory belongs to the copy until the stream has passed it;
  /// the call returns when other host memory has been read, or written.
  void copy(void* to, const void* from, int64_t bytes, Stream& stream);
  /// Memory that belongs to the stream: the next call on the same stream gets the same. Grows (then the host waits for
  /// the stream), and stays. Aligned to 256.
  void* scratch(Stream& stream, int64_t bytes);

  int64_t num_gemms() const { return num_gemms_; }  ///< so far
  void count_gemm() { num_gemms_ += 1; }
  /// What gemm.h keeps of this device; null until it needs it.
  std::shared_ptr<CublasLtPlans>& cublaslt_plans() { return cublaslt_plans_; }

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
  std::shared_ptr<CublasLtPlans> cublaslt_plans_;
  int64_t num_gemms_ = 0;
};

}  // namespace ashlar::ASHLAR_DEV
