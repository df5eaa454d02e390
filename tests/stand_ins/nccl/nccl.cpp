// The functions of nccl.h that the program calls.
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "core/base/strings.h"
#include "tests/stand_ins/device_extension.h"
#include "tests/stand_ins/nccl/communicator.h"

using ashlar::str_cat;
using ashlar::stand_in::Call;
using ashlar::stand_in::Post;
using ashlar::stand_in::Process;
using ashlar::stand_in::process;
using Kind = Call::Kind;

namespace {

constexpr int kMeet = 0, kAnswer = 1, kSplit = 4, kWindow = 5;

struct Id {
  uint64_t comm;
  int32_t root;  ///< rank of the world that made it
};

// What may be said to a communicator only while it lives, is done with the last call, and is not on its way out.
ncclResult_t check_free(ncclComm* comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  if (comm->aborted) return comm->refuse(ncclInvalidUsage, "a call after the abort");
  if (comm->busy) return comm->refuse(ncclInvalidUsage, "a call on a communicator that is in progress");
  if (comm->finalized) return comm->refuse(ncclInvalidUsage, "a call after finalize");
  if (comm->name != nullptr && comm->name != comm->name_when_made)
    return comm->refuse(ncclInvalidUsage, "the communicator's name has changed since it was made");
  return comm->error;
}

// As the vendor's: the size and the magic of a config that was initialised.
ncclResult_t take_config(ncclComm& comm, const ncclConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != 0xcafebeef) return ncclInvalidArgument;
  if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
    return ncclInvalidArgument;
  comm.blocking = config->blocking != 0;
  comm.name = config->commName;
  if (comm.name != nullptr) comm.name_when_made = comm.name;
  return ncclSuccess;
}

template <typename T>
Post::Bytes bytes_of(const T& value) {
  Post::Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
template <typename T>
T value_of(const Post::Bytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

ncclComm* make(uint64_t id, std::vector<int> world, int rank) {
  auto* const comm = new ncclComm;
  comm->id = id;
  comm->rank = rank;
  comm->world = std::move(world);
  comm->sent.assign(comm->world.size(), 0);
  comm->received.assign(comm->world.size(), 0);
  process().comms.push_back(comm);
  return comm;
}

ncclResult_t check(ncclComm& comm, const Call& call) {
  const auto invalid = [&](const char* text) {
    return comm.refuse(ncclInvalidArgument, str_cat(describe(call), ": ", text));
  };
  const bool reduces = call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter || call.kind == Kind::kReduce;
  const bool rooted = call.kind == Kind::kReduce || call.kind == Kind::kBroadcast || call.is_message();
  if (ashlar::stand_in::size_of(call.type) == 0) return invalid("no such type");
  if (reduces && call.op != ncclSum && call.op != ncclMax) return invalid("no such reduction");
  if (rooted && (call.root < 0 || call.root >= comm.size())) return invalid("no such rank");
  const bool is_root = comm.rank == call.root;
  const bool reads = call.kind != Kind::kRecv && (call.kind != Kind::kBroadcast || is_root);
  const bool writes = call.kind != Kind::kSend && (call.kind != Kind::kReduce || is_root);
  if (call.count > 0 && ((reads && call.send == nullptr) || (writes && call.recv == nullptr)))
    return invalid("a null pointer");
  // In place means one place only.
  const size_t bytes = call.count * ashlar::stand_in::size_of(call.type);
  const auto p = static_cast<size_t>(comm.size());
  const size_t sent = bytes * (call.kind == Kind::kReduceScatter ? p : 1);
  const size_t received = bytes * (call.kind == Kind::kAllGather ? p : 1);
  const auto* const from = static_cast<const char*>(call.send);
  const auto* const to = static_cast<const char*>(call.recv);
  if (!reads || !writes || call.count == 0 || from + sent <= to || to + received <= from) return ncclSuccess;
  const auto mine = static_cast<ptrdiff_t>(static_cast<size_t>(comm.rank) * bytes);
  const ptrdiff_t meant = call.kind == Kind::kReduceScatter ? mine : call.kind == Kind::kAllGather ? -mine : 0;
  return to - from == meant ? ncclSuccess : invalid("the buffers overlap at another place than in place means");
}

// What a rank sends itself needs both sides in one group.
bool messages_to_oneself_match(const ncclComm& comm, const std::vector<Call>& calls) {
  const auto count = [&](Kind kind) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const Call& call) { return call.kind == kind && call.root == comm.rank; });
  };
  return count(Kind::kSend) == count(Kind::kRecv);
}

ncclResult_t launch(ncclComm* comm, const std::vector<Call>& calls) {
  const ncclResult_t free = check_free(comm);
  if (free != ncclSuccess) return free;
  for (const Call& call : calls) {
    const ncclResult_t result = check(*comm, call);
    if (result != ncclSuccess) return result;
    if (call.stream != calls.front().stream) return comm->refuse(ncclInvalidUsage, "a group on two streams");
  }
  if (!messages_to_oneself_match(*comm, calls))
    return comm->refuse(ncclInvalidUsage, "a message to oneself without its other side in the group");
  return comm->work(
      {}, [comm, calls] { comm->launch(calls); }, true);
}

ncclResult_t call(ncclComm* comm, const Call& made) {
  if (process().group_depth == 0) return launch(comm, {made});
  const ncclResult_t free = check_free(comm);
  if (free != ncclSuccess) return free;
  process().group.emplace_back(comm, made);
  return ncclSuccess;
}

bool in_group_of_calls() { return process().group_depth > 0; }

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = ashlar::stand_in::has_fault("no windows yet") ? 22605 : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array<const char*, 8> kTexts = {"no error",
                                                 "unhandled cuda error",
                                                 "unhandled system error",
                                                 "internal error",
                                                 "invalid argument",
                                                 "invalid usage",
                                                 "remote process exited or there was a network error",
                                                 "NCCL operation in progress"};
  return kTexts.at(static_cast<size_t>(result));
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm != nullptr ? comm->last_error.c_str() : process().last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Process& p = process();
  const Id made{.comm = (static_cast<uint64_t>(p.post.world_rank() + 1) << 32) | ++p.next_id,
                .root = p.post.world_rank()};
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &made, sizeof(made));
  return ncclSuccess;
}

// Each member tells the rank that made the id who it is; that one, a member itself, tells all of all.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  Process& p = process();
  if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks || in_group_of_calls()) {
    p.last_error = "[stand-in nccl] ranks that are not there, or a communicator made in a group";
    return ncclInvalidArgument;
  }
  Id known{};
  std::memcpy(&known, id.internal, sizeof(known));
  ncclComm* const comm = make(known.comm, std::vector<int>(static_cast<size_t>(ranks)), rank);
  const ncclResult_t taken = take_config(*comm, config);
  if (taken != ncclSuccess) return taken;
  *out = comm;
  p.post.send(known.root, {.comm = known.comm, .sequence = kMeet, .from = 0, .number = static_cast<uint64_t>(rank)},
              bytes_of(p.post.world_rank()));
  const bool is_root = p.post.world_rank() == known.root;
  const auto have_met = [comm, known, is_root] {
    if (ashlar::stand_in::has_fault("never meets")) return false;
    Post& post = process().post;
    if (is_root && post.look({.comm = known.comm, .sequence = kAnswer, .from = known.root, .number = 0}) == nullptr) {
      const auto name = [&](size_t r) {
        return Post::Name{.comm = known.comm, .sequence = kMeet, .from = 0, .number = r};
      };
      for (size_t r = 0; r < comm->world.size(); ++r) {
        if (post.look(name(r)) == nullptr) return false;
      }
      Post::Bytes all;
      for (size_t r = 0; r < comm->world.size(); ++r) {
        const Post::Bytes one = post.take(name(r));
        all.insert(all.end(), one.begin(), one.end());
      }
      for (size_t r = 0; r < comm->world.size(); ++r) {
        int to = 0;
        std::memcpy(&to, all.data() + r * sizeof(int), sizeof(int));
        post.send(to, {.comm = known.comm, .sequence = kAnswer, .from = known.root, .number = 0}, all);
      }
    }
    return post.look({.comm = known.comm, .sequence = kAnswer, .from = known.root, .number = 0}) != nullptr;
  };
  const auto take_ranks = [comm, known] {
    const Post::Bytes all =
        process().post.take({.comm = known.comm, .sequence = kAnswer, .from = known.root, .number = 0});
    std::memcpy(comm->world.data(), all.data(), all.size());
  };
  return comm->work(have_met, take_ranks, false);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  const ncclResult_t free = check_free(parent);
  if (free != ncclSuccess) return free;
  if (in_group_of_calls()) return parent->refuse(ncclInvalidUsage, "a split in a group of other calls");
  if (!parent->under_way.empty()) return parent->refuse(ncclInvalidUsage, "a split with operations under way");
  struct Wish {
    int color, key, rank;
  };
  const uint64_t number = parent->splits++;
  const auto name = [=](int r) {
    return Post::Name{
        .comm = parent->id, .sequence = kSplit, .from = parent->world[static_cast<size_t>(r)], .number = number};
  };
  for (int r = 0; r < parent->size(); ++r)
    process().post.send(parent->world[static_cast<size_t>(r)], name(parent->rank),
                        bytes_of(Wish{color, key, parent->rank}));
  const auto all_said = [=] {
    for (int r = 0; r < parent->size(); ++r)
      if (process().post.look(name(r)) == nullptr) return false;
    return true;
  };
  ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  if (config != nullptr) own = *config;
  const bool inherits = config == nullptr;
  const auto make_child = [=] {
    std::vector<Wish> members;
    for (int r = 0; r < parent->size(); ++r) {
      const auto wish = value_of<Wish>(process().post.take(name(r)));
      if (wish.color == color) members.push_back(wish);
    }
    *out = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return;
    std::stable_sort(members.begin(), members.end(), [](const Wish& a, const Wish& b) { return a.key < b.key; });
    std::vector<int> world;
    int rank = 0;
    for (const Wish& member : members) {
      if (member.rank == parent->rank) rank = static_cast<int>(world.size());
      world.push_back(parent->world[static_cast<size_t>(member.rank)]);
    }
    // The same on all members, another one for each color.
    const uint64_t id =
        (parent->id * 0x9E3779B97F4A7C15ULL) ^ (number * 0xD1B54A32D192ED03ULL) ^ (static_cast<uint64_t>(color) << 40);
    ncclComm* const child = make(id, std::move(world), rank);
    if (inherits) {
      child->blocking = parent->blocking;
    } else {
      take_config(*child, &own);
    }
    *out = child;
    if (!child->blocking)
      child->work(
          {}, [] {}, false);
  };
  const ncclResult_t result = parent->work(all_said, make_child, false);
  // The vendor's returns success although parent and child are still at work.
  return result == ncclInProgress && process().random() % 2 == 0 ? ncclSuccess : result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ncclResult_t free = check_free(comm);
  if (free != ncclSuccess) return free;
  if (!comm->windows.empty()) return comm->refuse(ncclInvalidUsage, "finalized with windows");
  comm->finalized = true;
  return comm->work([comm] { return comm->under_way.empty(); }, [] {}, true);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (comm->busy || comm->aborted) return comm->refuse(ncclInvalidUsage, "destroyed while at work, or twice");
  std::erase(process().comms, comm);
  delete comm;
  return ncclSuccess;
}

// Kept, for its kernels to see that they are over and for those who call it once more.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (comm->aborted) return comm->refuse(ncclInvalidUsage, "aborted twice");
  comm->aborted = true;
  std::erase(process().comms, comm);
  process().ended.push_back(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  if (comm->aborted) return comm->refuse(ncclInvalidUsage, "a question after the abort");
  *error = comm->poll();
  return ncclSuccess;
}

// Memory of the device that owns the streams, or that of CUDA's runtime.
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) return ncclInvalidArgument;
  auto* const allocate = ashlar::stand_in::extension<ashlar_stand_in_allocate_t>("ashlar_stand_in_allocate");
  if (allocate == nullptr) return ncclUnhandledCudaError;
  *memory = allocate(bytes, NCCL_WIN_REQUIRED_ALIGNMENT);
  if (*memory == nullptr) return ncclUnhandledCudaError;
  process().memory[static_cast<const char*>(*memory)] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  Process& p = process();
  const auto block = p.memory.find(static_cast<const char*>(memory));
  if (block == p.memory.end()) return ncclInvalidArgument;
  for (ncclComm* const comm : p.comms) {
    if (comm->place_of(memory).window >= 0) return comm->refuse(ncclInvalidUsage, "memory of a window is freed");
  }
  ashlar::stand_in::extension<ashlar_stand_in_free_t>("ashlar_stand_in_free")(memory);
  p.memory.erase(block);
  return ncclSuccess;
}

// All ranks say what they bring. Memory that is not ncclMemAlloc's gives no window, which is no error.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags) {
  const ncclResult_t free = check_free(comm);
  if (free != ncclSuccess) return free;
  const auto* const base = static_cast<const char*>(buffer);
  if (in_group_of_calls()) return comm->refuse(ncclInvalidUsage, "a window in a group of other calls");
  if (window == nullptr || base == nullptr || bytes == 0 || flags != NCCL_WIN_COLL_SYMMETRIC)
    return comm->refuse(ncclInvalidArgument, "a window of nothing, or of an unknown kind");
  if (reinterpret_cast<uintptr_t>(base) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return comm->refuse(ncclInvalidArgument, "a window that begins at no multiple of 4096");
  for (const ncclComm::Window& other : comm->windows) {
    if (base < other.base + other.bytes && other.base < base + bytes)
      return comm->refuse(ncclInvalidArgument, "windows that overlap");
  }
  if (ashlar::stand_in::has_fault("refuses windows")) return comm->refuse(ncclUnhandledCudaError, "no such memory");
  *window = nullptr;
  Process& p = process();
  const char* const enabled = std::getenv("NCCL_WIN_ENABLE");
  auto block = p.memory.upper_bound(base);
  const bool ours = block != p.memory.begin() && (--block, base + bytes <= block->first + block->second);
  struct Offer {
    uint64_t bytes, usable;
  };
  const bool usable =
      ours && (enabled == nullptr || std::strcmp(enabled, "0") != 0) && !ashlar::stand_in::has_fault("no windows here");
  const uint64_t number = comm->windows_made++;
  const auto name = [=](int r) {
    return Post::Name{
        .comm = comm->id, .sequence = kWindow, .from = comm->world[static_cast<size_t>(r)], .number = number};
  };
  for (const int to : comm->world) p.post.send(to, name(comm->rank), bytes_of(Offer{bytes, usable ? 1U : 0U}));
  const auto all_said = [=] {
    for (int r = 0; r < comm->size(); ++r)
      if (process().post.look(name(r)) == nullptr) return false;
    return true;
  };
  const auto make_window = [=] {
    bool all = true;
    for (int r = 0; r < comm->size(); ++r) {
      const auto offer = value_of<Offer>(process().post.take(name(r)));
      if (offer.bytes != bytes) comm->error = comm->refuse(ncclInvalidArgument, "windows of several sizes");
      all = all && offer.usable != 0;
    }
    if (!all) return;
    *window = reinterpret_cast<ncclWindow_t>(new char);
    comm->windows.push_back({base, bytes, *window});
  };
  return comm->work(all_said, make_window, false);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const ncclResult_t free = check_free(comm);
  if (free != ncclSuccess) return free;
  const auto found = std::find_if(comm->windows.begin(), comm->windows.end(),
                                  [&](const ncclComm::Window& w) { return w.handle == window; });
  if (found == comm->windows.end()) return comm->refuse(ncclInvalidArgument, "no such window");
  if (!comm->under_way.empty()) return comm->refuse(ncclInvalidUsage, "a window is given up with operations under way");
  delete reinterpret_cast<char*>(window);
  comm->windows.erase(found);
  return comm->work(
      {}, [] {}, true);
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(
      comm,
      {.kind = Kind::kAllReduce, .send = send, .recv = recv, .count = count, .type = type, .op = op, .stream = stream});
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::kReduceScatter,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op,
                     .stream = stream});
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::kReduce,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .op = op,
                     .root = root,
                     .stream = stream});
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm,
              {.kind = Kind::kAllGather, .send = send, .recv = recv, .count = count, .type = type, .stream = stream});
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {.kind = Kind::kBroadcast,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .type = type,
                     .root = root,
                     .stream = stream});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {.kind = Kind::kSend, .send = send, .count = count, .type = type, .root = peer, .stream = stream});
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::kRecv, .recv = recv, .count = count, .type = type, .root = peer, .stream = stream});
}

ncclResult_t ncclGroupStart() {
  ++process().group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Process& p = process();
  if (p.group_depth == 0) {
    p.last_error = "[stand-in nccl] the end of a group that nobody began";
    return ncclInvalidUsage;
  }
  if (--p.group_depth > 0) return ncclSuccess;
  std::vector<std::pair<ncclComm*, std::vector<Call>>> by_comm;
  for (const auto& [comm, made] : std::exchange(p.group, {})) {
    const auto at = std::find_if(by_comm.begin(), by_comm.end(), [&](const auto& c) { return c.first == comm; });
    if (at == by_comm.end()) {
      by_comm.push_back({comm, {made}});
    } else {
      at->second.push_back(made);
    }
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, calls] : by_comm) {
    const ncclResult_t one = launch(comm, calls);
    if (one != ncclSuccess && result != ncclInvalidArgument && result != ncclInvalidUsage) result = one;
  }
  return result;
}
}
