#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "kernels/cuda/host/device.h"
#if !defined(ASHLAR_ON_CUDA)
#include <functional>
#endif

/// Launches of kernels.
namespace ashlar::ASHLAR_DEV {

/// Threads and warps of a block of a kernel that has no other number of them.
inline constexpr int kThreads = 256, kWarps = kThreads / 32;

/// Launch parameters of a kernel.
struct Launch {
  const char* name;  ///< name of the kernel in reports and errors
  dim3 grid;
  dim3 block;                ///< number of threads of a block, a multiple of 32
  int64_t shared_bytes = 0;  ///< bytes of dynamic shared memory (ASHLAR_DYNAMIC_SHARED)
};

namespace internal {

/// True if arguments of these types can be passed to a kernel: they are copied bytewise, at most 4000 bytes in total.
template <typename... Params>
constexpr bool may_travel() {
  return (... && (std::is_trivially_copyable_v<Params> && !std::is_reference_v<Params>)) &&
         (sizeof(Params) + ... + 0) <= 4000;
}

#if defined(ASHLAR_ON_CUDA)
void launch_kernel(Stream& stream, const Launch& launch, const void* kernel, void** arguments);
#else
void launch_kernel(Stream& stream, const Launch& launch, std::function<void()> thread);
/// Returns DeviceOptions::substitute of the stream's device; it may be empty.
const emulator::KernelSubstitute& substitute_of(Stream& stream);
#endif

}  // namespace internal

/// Queues a kernel. Arguments are passed by value:
///   run_kernel(stream, {.name = "fill", .grid = blocks, .block = 256}, fill_kernel<T>, data, size, value);
template <typename... Params, typename... Args>
void run_kernel(Stream& stream, const Launch& launch, void (*kernel)(Params...), Args&&... args) {
  static_assert(internal::may_travel<Params...>(),
                "kernels take trivially copyable arguments by value, at most 4000 bytes");
  static_assert(sizeof...(Params) == sizeof...(Args), "expected as many arguments as the kernel has parameters");
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

/// Number of blocks of `threads` threads that process `n` items, one item per thread.
inline unsigned blocks_for(int64_t n, int64_t threads) { return static_cast<unsigned>((n + threads - 1) / threads); }

}  // namespace ashlar::ASHLAR_DEV
