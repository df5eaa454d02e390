#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/device/allocator.h"
#include "core/device/stream.h"
#include "kernels/cuda/dev/kernel.h"

/// The interface through which the backend's host code uses a device: memory, streams and copies. Launches are in
/// launch_kernel.h. device_cuda.cpp implements it with the CUDA runtime; tests link an emulated device instead.
namespace ashlar::ASHLAR_DEV {

/// Selects a device and its options.
struct DeviceOptions {
  int ordinal = 0;                ///< index among the visible devices
  int64_t max_memory_bytes = 0;   ///< limit for all kinds of device memory together; 0 = no limit
#if !defined(ASHLAR_ON_CUDA)      // an emulated device
  std::string schedule = "fifo";  ///< order of a kernel's threads: fifo, lifo, random, or pct (by random priorities)
  std::string stream_order = "random";         ///< order of queued work: random, or at_once (runs when it is queued)
  uint64_t seed = 1;                           ///< seed of both orders
  emulator::KernelSubstitute substitute = {};  ///< may replace kernels by other code
#endif
};

class CublasLtPlans;

/// A device with its memory and streams. Not thread-safe: used by one thread.
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
  /// Queues a copy. The addresses determine its direction. Pinned host memory must not be used until the stream has
  /// executed the copy. For other host memory the call returns after the memory was read or written.
  void copy(void* to, const void* from, int64_t bytes, Stream& stream);
  int64_t max_shared_bytes() const;  ///< shared memory that a block may have, static and dynamic
  /// Returns scratch memory of the stream, aligned to 256 bytes. The next call on the same stream gets the same memory.
  /// The memory grows when needed (the host then waits for the stream) and never shrinks.
  void* scratch(Stream& stream, int64_t bytes);

  int64_t num_gemms() const { return num_gemms_; }  ///< number of matrix products so far
  void count_gemm() { num_gemms_ += 1; }
  /// The cublasLt plans of this device; null until the first use of gemm.h.
  std::shared_ptr<CublasLtPlans>& cublaslt_plans() { return cublaslt_plans_; }

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
  std::shared_ptr<CublasLtPlans> cublaslt_plans_;
  int64_t num_gemms_ = 0;
};

}  // namespace ashlar::ASHLAR_DEV
