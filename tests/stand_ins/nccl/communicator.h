#pragma once

#include <dlfcn.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/stand_ins/nccl/post.h"

namespace ashlar::stand_in {

/// One call that moves data.
struct Call {
  enum class Kind : int32_t { kAllReduce, kReduceScatter, kReduce, kAllGather, kBroadcast, kSend, kRecv };
  Kind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op = ncclSum;
  int root = -1;  ///< or peer
  cudaStream_t stream = nullptr;

  bool is_message() const { return kind == Kind::kSend || kind == Kind::kRecv; }
};
const char* name_of(Call::Kind kind);
size_t size_of(ncclDataType_t type);
std::string describe(const Call& call);
/// Whether ASHLAR_STAND_IN_NCCL_FAULT asks for this fault now.
bool has_fault(const char* name);

/// A function of device_extension.h, or null.
template <typename Function>
Function* extension(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// What all communicators of this process share.
struct Process {
  Process();
  Post post;
  std::mt19937_64 random;
  uint64_t next_id = 0;
  int group_depth = 0;
  std::vector<std::pair<ncclComm*, Call>> group;
  std::vector<ncclComm*> comms;
  std::vector<ncclComm*> ended;          ///< aborted ones, which somebody may still ask
  std::map<const char*, size_t> memory;  ///< of ncclMemAlloc, in bytes
  std::string last_error;
};
Process& process();

/// Where a buffer lies in the windows of its communicator, counted from 0; -1 where it lies in none.
struct WindowPlace {
  int64_t window = -1, offset = 0;
  bool operator==(const WindowPlace&) const = default;
};

}  // namespace ashlar::stand_in

/// A communicator and what it is busy with.
struct ncclComm {
  using Process = ashlar::stand_in::Process;
  using Call = ashlar::stand_in::Call;

  uint64_t id = 0;
  int rank = 0;
  std::vector<int> world;  ///< ranks of the world, by rank
  bool blocking = true;
  // The vendor's library keeps the caller's pointer to the name.
  const char* name = nullptr;
  std::string name_when_made;
  bool finalized = false, aborted = false;
  ncclResult_t error = ncclSuccess;
  std::string last_error;
  uint64_t collectives = 0;
  std::vector<uint64_t> sent, received;  ///< messages so far, by peer
  uint64_t splits = 0, windows_made = 0;
  struct Window {
    const char* base;
    size_t bytes;
    ncclWindow_t handle;
  };
  std::vector<Window> windows;
  std::vector<std::shared_ptr<void>> under_way;  ///< launches that a stream has not passed

  // Busy until asked so many times and until `ready`; then `finish` is called.
  bool busy = false;
  int polls_left = 0;
  std::function<bool()> ready;
  std::function<void()> finish;

  int size() const { return static_cast<int>(world.size()); }
  ashlar::stand_in::WindowPlace place_of(const void* at) const;
  /// Says what went wrong to ncclGetLastError.
  ncclResult_t refuse(ncclResult_t result, const std::string& text);
  /// Begins what `finish` ends: now, or after some questions, as chance has it.
  ncclResult_t work(std::function<bool()> ready, std::function<void()> finish, bool may_be_done_at_once);
  ncclResult_t poll();
  /// Queues calls on their stream as one kernel.
  void launch(const std::vector<Call>& calls);
};
