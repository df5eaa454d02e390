#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace ashlar::comm::nccl {

// The part of NCCL that this program uses, declared here because the CUDA toolkit has no nccl.h. Values and layouts
// match NCCL 2.28. Other versions accept them too, since Config states its size and version.
// tests/mpi/nccl_header_test.cpp compares the values and layouts with the vendor's header.

struct Opaque;
using Comm = Opaque*;
struct OpaqueWindow;
using Window = OpaqueWindow*;
using Stream = void*;  ///< cudaStream_t

struct UniqueId {
  char bytes[128];
};

enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class Type : int { kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum class RedOp : int { kSum = 0, kMax = 2 };

inline constexpr int kNoColor = -1;
inline constexpr int kUndefined = INT_MIN;
inline constexpr int kSymmetricWindow = 1;
inline constexpr int64_t kWindowAlignment = 4096;  ///< alignment of a window's first byte, in bytes

/// ncclConfig_t of 2.28. Members with kUndefined use NCCL's default.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int n_channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

/// Pointers to the library's functions, named without the prefix "nccl".
struct Api {
  Result (*GetVersion)(int* version) = nullptr;
  Result (*GetUniqueId)(UniqueId* id) = nullptr;
  const char* (*GetErrorString)(Result result) = nullptr;
  const char* (*GetLastError)(Comm comm) = nullptr;
  Result (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Result (*CommSplit)(Comm comm, int color, int key, Comm* part, Config* config) = nullptr;
  Result (*CommFinalize)(Comm comm) = nullptr;
  Result (*CommDestroy)(Comm comm) = nullptr;
  Result (*CommAbort)(Comm comm) = nullptr;
  Result (*CommGetAsyncError)(Comm comm, Result* error) = nullptr;
  Result (*AllReduce)(const void* send, void* recv, size_t count, Type type, RedOp op, Comm comm,
                      Stream stream) = nullptr;
  Result (*ReduceScatter)(const void* send, void* recv, size_t recv_count, Type type, RedOp op, Comm comm,
                          Stream stream) = nullptr;
  Result (*Reduce)(const void* send, void* recv, size_t count, Type type, RedOp op, int root, Comm comm,
                   Stream stream) = nullptr;
  Result (*AllGather)(const void* send, void* recv, size_t send_count, Type type, Comm comm, Stream stream) = nullptr;
  Result (*Broadcast)(const void* send, void* recv, size_t count, Type type, int root, Comm comm,
                      Stream stream) = nullptr;
  Result (*Send)(const void* send, size_t count, Type type, int peer, Comm comm, Stream stream) = nullptr;
  Result (*Recv)(void* recv, size_t count, Type type, int peer, Comm comm, Stream stream) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;
  // Null before NCCL 2.27.
  Result (*MemAlloc)(void** memory, size_t bytes) = nullptr;
  Result (*MemFree)(void* memory) = nullptr;
  Result (*CommWindowRegister)(Comm comm, void* memory, size_t bytes, Window* window, int flags) = nullptr;
  Result (*CommWindowDeregister)(Comm comm, Window window) = nullptr;
};

}  // namespace ashlar::comm::nccl
