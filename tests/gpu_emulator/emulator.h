#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/gpu_emulator/traffic.h"
#include "tests/gpu_emulator/vector_types.h"

/// Runs CUDA kernels on the host: blocks one after the other, the threads of a block as fibers on the thread that
/// calls. It is as strict as the programming guide, not as lenient as a GPU: what is undefined there is an error here.
namespace ashlar::emulator {

/// A fault of a kernel or of its launch, with kernel, block, thread, file and line. The block's other threads are
/// dropped where they stood; the machine may be used again. Memory that the kernel wrote until then keeps it.
class Error : public Bug {
 public:
  using Bug::Bug;
};

/// Which runnable thread goes on whenever one waits.
enum class Policy {
  kFifo,    ///< blocks and threads in ascending order
  kLifo,    ///< in descending order, the last that became runnable first
  kRandom,  ///< any
  kPct,     ///< strict random priorities that change now and then: some warps run far ahead, others starve
};
const char* policy_name(Policy policy);

/// How a grid is run. Results of a correct kernel depend on none of it.
struct Schedule {
  Policy policy = Policy::kFifo;
  uint64_t seed = 1;  ///< of kRandom and kPct
};

/// One launch.
struct Grid {
  const char* name = "kernel";   ///< for errors
  dim3 grid;                     ///< blocks
  dim3 block;                    ///< threads of a block, together a multiple of 32
  int64_t shared_bytes = 0;      ///< dynamic shared memory
  std::function<void()> thread;  ///< what each thread runs; see `bind`
  int64_t launch = 0;            ///< the caller's number of this launch, for Memory::ordered
};

/// A kernel with its arguments, by value, as a Grid's `thread`.
template <typename... Params, typename... Args>
std::function<void()> bind(void (*kernel)(Params...), Args&&... args);

/// What is called, for whoever runs something else in a kernel's place: its code as another compiler made it.
struct KernelCall {
  const void* function = nullptr;
  std::vector<std::vector<std::byte>> arguments;  ///< the bytes of each
};
template <typename... Params, typename... Args>
KernelCall describe(void (*kernel)(Params...), Args&&... args);
/// What a thread of that call runs instead; empty: the kernel itself.
using KernelSubstitute = std::function<std::function<void()>(const KernelCall&)>;

/// What a machine is told of the memory around its kernels, to judge accesses of those that are compiled with
/// ASHLAR_INSTRUMENTED (and `-fsanitize=thread`, which calls us at each access).
struct WatchOptions {
  /// Whether kernels may touch all of these bytes. Without it they may touch all memory.
  std::function<bool(const void* address, int64_t bytes)> is_device_memory = {};
  /// More about a place that they may not touch, for the error.
  std::function<std::string(const void* address)> describe = {};
  /// Whether a launch (Grid::launch) is over before a later one begins. Without it every one is.
  std::function<bool(int64_t earlier, int64_t later)> ordered = {};
};

/// Runs grids, one after the other. Owns the fibers' stacks and the shared memory, so keep one. Not thread-safe, but
/// each thread of the host may have one of its own.
class Machine {
 public:
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Returns when all threads of all blocks have ended. Throws Error.
  void run(const Grid& grid, const Schedule& schedule = {});

  /// From now on accesses of instrumented kernels are judged and counted: a race, an access out of bounds or to memory
  /// of the host, or a misaligned one is an Error.
  void watch(WatchOptions options);
  /// By kernel, what was counted since the last clear_traffic.
  const std::map<std::string, Traffic>& traffic() const;
  void clear_traffic();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs one grid on a machine of its own.
void run(const Grid& grid, const Schedule& schedule = {});

namespace internal {

/// Calls a kernel. Its parameters live in host memory, which only kernels may not read: no instrumentation here.
template <typename... Params>
struct BoundKernel {
  void (*kernel)(Params...);
  std::tuple<Params...> arguments;

  __attribute__((no_sanitize("thread"))) void operator()() const { call(std::index_sequence_for<Params...>{}); }

 private:
  template <size_t... I>
  __attribute__((no_sanitize("thread"))) void call(std::index_sequence<I...>) const {
    kernel(std::get<I>(arguments)...);
  }
};

}  // namespace internal

template <typename... Params, typename... Args>
std::function<void()> bind(void (*kernel)(Params...), Args&&... args) {
  return internal::BoundKernel<Params...>{kernel, {static_cast<Params>(std::forward<Args>(args))...}};
}

template <typename... Params, typename... Args>
KernelCall describe(void (*kernel)(Params...), Args&&... args) {
  KernelCall call{reinterpret_cast<const void*>(kernel), {}};
  const auto add = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    call.arguments.emplace_back(bytes, bytes + sizeof(value));
  };
  (add(static_cast<const Params&>(static_cast<Params>(args))), ...);
  return call;
}

}  // namespace ashlar::emulator
