#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/gpu_emulator/virtual_gpu.h"

/// The CUDA runtime on emulated devices: what the calls of this folder share.
namespace ashlar::stand_in {

/// ASHLAR_STAND_IN_CUDA: words of the form key=value, separated by blanks. See README.md.
struct Options {
  int devices = 1;
  bool same_uuid = false;       ///< all devices say that they are one
  int64_t memory_mib = 4096;    ///< of a device
  int64_t context_mib = 256;    ///< which a process takes by using it
  int driver = CUDART_VERSION;  ///< 0: there is none
  int capability = 90;
  uint64_t seed = 1;
  emulator::StreamOrder order = emulator::StreamOrder::kRandom;
  double patience_sec = 120;
  bool eager = false;   ///< a device opens only if code is loaded at the start (CUDA_MODULE_LOADING)
  std::string fail;     ///< the call that fails,
  int64_t fail_at = 0;  ///< the how-often-th of them,
  int fail_with = 0;    ///< with this error, for good if `fail_sticks`
  bool fail_sticks = false;

  /// Throws input_error for a word that it does not know.
  static Options read(const std::string& text);
};

/// What a device says of itself: most of it an H100's.
cudaDeviceProp properties_of(const Options& options, int ordinal);

/// One device and the context of this process on it, from the first call that needs it.
struct Device {
  Device(const Options& options, int ordinal);

  const int ordinal;
  cudaDeviceProp properties{};
  emulator::VirtualGpu gpu;
  emulator::DeviceMemory managed;  ///< both sides may touch it at any time
  std::map<const void*, int64_t> blocks, pinned;
  std::set<const void*> registered;  ///< of `pinned`, memory that the host has allocated
  int64_t context_bytes;
};

struct QueuedStream {
  Device* device;
  std::unique_ptr<ashlar::Stream> stream;
  unsigned flags;
  int priority;
};

struct QueuedEvent {
  Device* device;
  std::unique_ptr<ashlar::Event> event;
  unsigned flags;
  bool recorded = false;
  std::shared_ptr<double> seconds;  ///< when work passed it; negative until then. None where timing is off.
};

/// Where bytes lie.
enum class Place : uint8_t { kHost, kPinned, kDevice, kNowhere };

/// One a process: calls of C have no other place to keep it.
class Runtime {
 public:
  explicit Runtime(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }
  int current_ordinal() const;
  int64_t num_contexts() const { return std::ssize(devices_); }
  void set_current(int ordinal) { current_[std::this_thread::get_id()] = ordinal; }
  /// Makes the context if there is none.
  Device& device(int ordinal);
  Device& current() { return device(current_ordinal()); }

  /// Null for a handle that is none, or no more. The null stream is the current device's.
  QueuedStream* stream(cudaStream_t handle);
  QueuedEvent* event(cudaEvent_t handle);
  cudaStream_t add(QueuedStream stream);
  cudaEvent_t add(QueuedEvent event);
  bool remove(cudaStream_t handle) { return streams_.erase(handle) == 1; }
  bool remove(cudaEvent_t handle) { return events_.erase(handle) == 1; }
  /// Work goes into the stream now: keeps the order with the null stream.
  void before_queueing(QueuedStream& stream);

  /// Where the bytes lie, and whose they are.
  std::pair<Place, Device*> place_of(const void* at, size_t bytes);

  /// Runs a callback of the host, or a step: it may not call us.
  void in_callback(const std::function<void()>& run);

  /// The one way into each call: counts it, refuses it where it may not be made, turns what it throws into errors.
  cudaError_t call(const char* name, bool needs_device, const std::function<cudaError_t()>& run);
  cudaError_t take_error();
  cudaError_t peek_error() const;
  void fail(cudaError_t error, const std::string& why);

  /// Queued work has this address, or is this kernel.
  void met(uint64_t what) { met_ = (met_ ^ what) * 0x9E3779B97F4A7C15U + (met_ >> 29); }
  uint64_t take_met() { return std::exchange(met_, 0); }

  long calls(const std::string& name) const;
  long host_waits() const;
  const std::string& fault() const { return fault_; }

 private:
  cudaError_t checked(const char* name, bool needs_device, const std::function<cudaError_t()>& run);

  const Options options_;
  std::map<int, std::unique_ptr<Device>> devices_;
  std::map<cudaStream_t, QueuedStream> streams_;
  std::map<int, QueuedStream> null_streams_;
  std::map<cudaEvent_t, QueuedEvent> events_;
  uintptr_t next_handle_ = 0x51A00000;
  std::map<std::thread::id, int> current_;
  std::map<std::thread::id, cudaError_t> last_error_;
  std::map<std::string, long> calls_;
  cudaError_t sticky_ = cudaSuccess;
  std::string fault_;
  uint64_t met_ = 0;
  bool in_callback_ = false;
};

/// The process's runtime, locked for one call.
class Locked {
 public:
  Locked();
  Runtime* operator->() const;
  Runtime& operator*() const { return *operator->(); }
  static void reset(const std::string& options);

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// The shape of each call: `return entry("cudaFree", [&](Runtime& runtime) { ... return cudaSuccess; });`
cudaError_t entry(const char* name, const std::function<cudaError_t(Runtime&)>& run);
/// The same for calls that need no driver.
cudaError_t entry_without_device(const char* name, const std::function<cudaError_t(Runtime&)>& run);

}  // namespace ashlar::stand_in
