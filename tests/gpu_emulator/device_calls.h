#pragma once

#include <cstdint>

#include "tests/gpu_emulator/loc.h"
#include "tests/gpu_emulator/vector_types.h"

/// What the code of a kernel asks of the emulator. Called by the intrinsics of `intrinsics.h` and by the instructions
/// of kernels/cuda/dev/ptx.h; all of them work on the thread that calls.
namespace ashlar::emulator {

class Block;

namespace internal {
/// The block whose thread is running on this thread of the host, null outside of kernels. CUDA's intrinsics take no
/// context, so this one pointer cannot be passed.
extern thread_local constinit Block* current_block;
}  // namespace internal

[[noreturn]] void fault(const char* text, Loc loc);

// Which thread of which block runs. A thread keeps its answers, so a compiler may ask once.
[[gnu::const]] uint3 thread_index();
[[gnu::const]] uint3 block_index();
[[gnu::const]] dim3 block_extent();
[[gnu::const]] dim3 grid_extent();
[[gnu::const]] int lane_index();

// Barriers.

enum class Vote { kNone, kAny, kAll, kCount };
/// __syncthreads and its forms: the vote over all `value != 0` of the block.
int sync_threads(Vote vote, int value, Loc loc);
/// bar.sync: waits until `threads` threads (a multiple of 32) have come to barrier `id` (1 to 15).
void named_barrier_sync(int id, int threads, Loc loc);
/// bar.arrive: counts as come, and goes on.
void named_barrier_arrive(int id, int threads, Loc loc);

// Warps.

/// A collective of a warp: each lane of the mask brings `in` and `out`; the last to come computes for all.
struct WarpOperands {
  uint32_t mask;
  const void* in[32];
  void* out[32];
  Loc loc;
};
struct WarpCall {
  uint32_t mask = 0;
  const char* name = "";  ///< for errors
  bool aligned = false;   ///< all 32 lanes must take part
  bool orders = false;    ///< what a lane did before it has happened before what the others do after it
  const void* in = nullptr;
  void* out = nullptr;
  void (*compute)(const WarpOperands&) = nullptr;
};
void warp_call(const WarpCall& call, Loc loc);
void sync_warp(uint32_t mask, Loc loc);
/// The lanes of the mask whose value is not 0.
uint32_t ballot(uint32_t mask, int value, Loc loc);
enum class Reduction { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };
uint32_t reduce(Reduction reduction, uint32_t mask, uint32_t value, Loc loc);
/// Each lane of the mask takes the bytes that lane `source` brings.
struct Shuffle {
  uint32_t mask;
  const void* in;
  void* out;
  int64_t bytes;
  int source;
};
void shuffle(const Shuffle& shuffle, Loc loc);

// Shared memory.

/// A static shared variable of the block, made when the first thread comes by. `key` names the variable.
void* static_shared(const void* key, int64_t bytes, int64_t align, Loc loc);
/// The launch's dynamic shared memory, aligned to 128.
void* dynamic_shared(Loc loc);
/// The 32-bit address of a pointer to shared memory.
uint32_t shared_address(const void* pointer, Loc loc);

// Tensor cores.

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, const float* c, Loc loc);
/// ldmatrix.sync.aligned.m8n8.xN(.trans).shared.b16, N = matrices
void ldmatrix(uint32_t* r, int matrices, bool transposed, uint32_t shared_address, Loc loc);

// Asynchronous copies.

/// cp.async: `bytes` (4, 8 or 16) to shared memory, of which `source_bytes` come from global memory and the rest is 0.
struct AsyncCopy {
  uint32_t to;
  const void* from;
  int bytes;
  int source_bytes;
};
void cp_async(const AsyncCopy& copy, Loc loc);
void cp_async_commit_group();
/// Waits until at most `pending` of this thread's groups are on their way.
void cp_async_wait_group(int pending, Loc loc);
/// Waits for all, committed or not.
void cp_async_wait_all(Loc loc);

// Barriers in shared memory (mbarrier).

void mbarrier_init(uint32_t address, int arrivals, Loc loc);
void mbarrier_arrive(uint32_t address, Loc loc);
/// Arrives, and lets the phase end only after `bytes` more bytes have come.
void mbarrier_arrive_expect_tx(uint32_t address, int bytes, Loc loc);
/// Bytes that were expected have come.
void mbarrier_complete_tx(uint32_t address, int bytes, Loc loc);
/// Waits until the phase of this parity has ended.
void mbarrier_wait_parity(uint32_t address, int parity, Loc loc);

// Fences and atomics. `order` is relaxed, as in CUDA.

void thread_fence(Loc loc);

template <typename T>
T atomic_add(T* address, T value, Loc loc);
template <typename T>
T atomic_min(T* address, T value, Loc loc);
template <typename T>
T atomic_max(T* address, T value, Loc loc);
template <typename T>
T atomic_or(T* address, T value, Loc loc);
template <typename T>
T atomic_and(T* address, T value, Loc loc);
template <typename T>
T atomic_exchange(T* address, T value, Loc loc);
template <typename T>
T atomic_compare_exchange(T* address, T expected, T value, Loc loc);

}  // namespace ashlar::emulator
