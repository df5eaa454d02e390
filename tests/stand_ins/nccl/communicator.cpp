#include "tests/stand_ins/nccl/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "core/base/strings.h"
#include "tests/stand_ins/device_extension.h"
#include "tests/stand_ins/nccl/kernel.h"

namespace ashlar::stand_in {

namespace {

/// A kernel on its way through a stream.
struct Queued {
  ncclComm* comm;
  Kernel kernel;
};

bool step(void* data) {
  auto* const queued = static_cast<Queued*>(data);
  ncclComm& comm = *queued->comm;
  if (!comm.aborted && !queued->kernel.step()) return false;
  std::erase_if(comm.under_way, [data](const auto& launch) { return launch.get() == data; });
  return true;
}

void enqueue(ncclComm& comm, const std::vector<Call>& calls) {
  const auto queued = std::make_shared<Queued>(Queued{&comm, Kernel(comm, calls)});
  comm.under_way.push_back(queued);  // a stream that fails or ends never passes it
  auto* const queue = extension<ashlar_stand_in_enqueue_t>("ashlar_stand_in_enqueue");
  auto* const touch = extension<ashlar_stand_in_touch_t>("ashlar_stand_in_touch");
  if (queue == nullptr || touch == nullptr)
    throw std::logic_error("[stand-in nccl] nobody in this process owns streams");
  queue(calls.front().stream, step, queued.get(), str_cat("nccl ", name_of(calls.front().kind)).c_str());
  const auto p = static_cast<size_t>(comm.size());
  for (const Call& call : calls) {
    const size_t bytes = call.count * size_of(call.type);
    const bool reads =
        call.kind != Call::Kind::kRecv && (call.kind != Call::Kind::kBroadcast || comm.rank == call.root);
    const bool writes = call.kind != Call::Kind::kSend && (call.kind != Call::Kind::kReduce || comm.rank == call.root);
    if (reads) touch(call.send, call.kind == Call::Kind::kReduceScatter ? bytes * p : bytes, false);
    if (writes) touch(call.recv, call.kind == Call::Kind::kAllGather ? bytes * p : bytes, true);
  }
}

}  // namespace

const char* name_of(Call::Kind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "reduce", "all_gather",
                                    "broadcast",  "send",           "recv"};
  return kNames[static_cast<int>(kind)];
}

bool has_fault(const char* name) {
  const char* const fault = std::getenv("ASHLAR_STAND_IN_NCCL_FAULT");
  return fault != nullptr && std::strcmp(fault, name) == 0;
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

std::string describe(const Call& call) {
  return str_cat(name_of(call.kind), " of ", call.count, " of type ", static_cast<int>(call.type),
                 call.root >= 0 ? str_cat(" with rank ", call.root) : "");
}

Process::Process() {
  const char* const seed = std::getenv("ASHLAR_STAND_IN_SEED");
  random.seed((seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1) * 1000 +
              static_cast<uint64_t>(post.world_rank()));
}

Process& process() {
  static auto* const only = new Process;
  return *only;
}

}  // namespace ashlar::stand_in

using ashlar::str_cat;
using ashlar::stand_in::process;

ncclResult_t ncclComm::refuse(ncclResult_t result, const std::string& text) {
  last_error = str_cat("[stand-in nccl] ", text);
  return result;
}

ncclResult_t ncclComm::work(std::function<bool()> when, std::function<void()> then, bool may_be_done_at_once) {
  if (may_be_done_at_once && process().random() % 2 == 0 && (!when || when())) {
    then();
    return ncclSuccess;
  }
  busy = true;
  polls_left = 1 + static_cast<int>(process().random() % 4);
  ready = std::move(when);
  finish = std::move(then);
  if (!blocking) return ncclInProgress;
  while (poll() == ncclInProgress) continue;
  return error;
}

ncclResult_t ncclComm::poll() {
  process().post.progress();
  if (ashlar::stand_in::has_fault("remote error")) {
    last_error = "[stand-in nccl] a rank is gone";
    return error = ncclRemoteError;
  }
  if (!busy) return error;
  if (--polls_left > 0 || (ready && !ready())) return ncclInProgress;
  busy = false;
  if (const auto then = std::exchange(finish, nullptr)) then();
  return busy ? ncclInProgress : error;
}

ashlar::stand_in::WindowPlace ncclComm::place_of(const void* at) const {
  const auto* const place = static_cast<const char*>(at);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (place >= windows[i].base && place < windows[i].base + windows[i].bytes)
      return {.window = static_cast<int64_t>(i), .offset = place - windows[i].base};
  }
  return {};
}

void ncclComm::launch(const std::vector<Call>& calls) { ashlar::stand_in::enqueue(*this, calls); }
