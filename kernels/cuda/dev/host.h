#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/device/allocator.h"
#include "core/device/stream.h"
#include "kernels/cuda/dev/kernel.h"
#if !defined(ASHLAR_ON_CUDA)
#include <functional>
#endif

/// What the host side of the backend may ask of a device: memory, streams, copies, launches. The CUDA runtime
/// does it (host_cuda.cpp), or the device that a test was compiled for. Matrix products: gemm.h.
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

class GemmPlans;

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
  std::shared_ptr<GemmPlans>& gemm_plans() { return gemm_plans_; }

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
  std::shared_ptr<GemmPlans> gemm_plans_;
  int64_t num_gemms_ = 0;
};

/// How a kernel is launched.
struct Launch {
  const char* name;  ///< for reports and errors
  dim3 grid;
  dim3 block;                ///< threads, a multiple of 32
  int64_t shared_bytes = 0;  ///< of ASHLAR_DYNAMIC_SHARED
};

namespace internal {

/// Kernel arguments travel in 4 KiB, and by value.
template <typename... Params>
constexpr bool may_travel() {
  return (... && (std::is_trivially_copyable_v<Params> && !std::is_reference_v<Params>)) &&
         (sizeof(Params) + ... + 0) <= 4000;
}

#if defined(ASHLAR_ON_CUDA)
void launch_kernel(Stream& stream, const Launch& launch, const void* kernel, void** arguments);
#else
void launch_kernel(Stream& stream, const Launch& launch, std::function<void()> thread);
/// The substitute of the stream's device, if there is one.
const emulator::KernelSubstitute& substitute_of(Stream& stream);
#endif

}  // namespace internal

/// Queues a kernel; arguments travel by value.
///   run_kernel(stream, {.name = "fill", .grid = blocks, .block = 256}, fill_kernel<T>, data, size, value);
template <typename... Params, typename... Args>
void run_kernel(Stream& stream, const Launch& launch, void (*kernel)(Params...), Args&&... args) {
  static_assert(internal::may_travel<Params...>(),
                "kernels take trivially copyable arguments by value, 4000 bytes in all");
  static_assert(sizeof...(Params) == sizeof...(Args), "as many arguments as the kernel has parameters");
#if defined(ASHLAR_ON_CUDA)
  std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(args))...);
  std::apply(
      [&](auto&... each) {
        std::array<void*, sizeof...(Params) + 1> addresses{static_cast<void*>(&each)...};
        internal::launch_kernel(stream, launch, reinterpret_cast<const void*>(kernel), addresses.data());
      },
      values);
#else
  std::function<void()> thread;
  if (const auto& substitute = internal::substitute_of(stream))
    thread = substitute(emulator::describe(kernel, args...));
  if (!thread) thread = emulator::bind(kernel, std::forward<Args>(args)...);
  internal::launch_kernel(stream, launch, std::move(thread));
#endif
}

/// Blocks of `threads` that cover `n` items.
inline unsigned blocks_for(int64_t n, int64_t threads) { return static_cast<unsigned>((n + threads - 1) / threads); }

}  // namespace ashlar::ASHLAR_DEV
