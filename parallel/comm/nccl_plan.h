#pragma once

#include <vector>

#include "parallel/comm/device_operation.h"
#include "parallel/comm/nccl_api.h"

namespace ashlar::comm {

/// One call of NCCL. `count` as in the function of that name: elements of the whole vector, of one rank's part
/// (kReduceScatter, kAllGather), or of a message.
struct NcclCall {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kReduce, kAllGather, kBroadcast, kSend, kRecv };
  Kind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;
  DType dtype{};
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;  ///< root, receiver or sender

  bool operator==(const NcclCall&) const = default;
};

/// The NCCL calls for an operation on `rank`, to be made as one group; empty if no data moves.
///   NCCL scatters and gathers equal contiguous parts. If the last part is longer, its surplus is sent by a reduce to
/// its rank, or a broadcast from its rank. If the parts have another form, each part is sent in this way.
///   An all_to_all is a send and a receive per rank, including this one, except for empty parts.
///   Not for barriers, which need memory of their own, and not for messages of a rank to itself.
std::vector<NcclCall> plan_nccl_calls(const DeviceOperation& args, int rank);

/// Makes one of the calls.
nccl::Result make_call(const nccl::Api& api, const NcclCall& call, nccl::Comm comm, nccl::Stream stream);

}  // namespace ashlar::comm
