#pragma once

#include <vector>

#include "parallel/comm/device_operation.h"
#include "parallel/comm/nccl_api.h"

namespace ashlar::comm {

/// One call of NCCL. `count` is the count argument of that NCCL function: the elements of the whole vector, of one
/// rank's part (kReduceScatter, kAllGather), or of a message.
struct NcclCall {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kReduce, kAllGather, kBroadcast, kSend, kRecv };
  Kind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;
  DType dtype{};
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;  ///< root of kReduce and kBroadcast, receiver of kSend, sender of kRecv

  bool operator==(const NcclCall&) const = default;
};

/// Returns the NCCL calls for an operation on `rank`, to be made as one group; empty if no data moves.
///   NCCL scatters and gathers only equal contiguous parts. If the last part is longer than the others, its surplus is
/// transferred by another call: a reduce to its rank (for a reduce_scatter) or a broadcast from its rank (for an
/// all_gather). If the parts have any other form, each part is transferred by its own reduce or broadcast.
///   An all_to_all is a send and a receive per rank, including this one, except for empty parts.
///   Not for barriers, which need a buffer. A message of a rank to itself must be given as one SendRecv.
std::vector<NcclCall> plan_nccl_calls(const DeviceOperation& args, int rank);

/// Makes the NCCL call that `call` describes.
nccl::Result make_call(const nccl::Api& api, const NcclCall& call, nccl::Comm comm, nccl::Stream stream);

}  // namespace ashlar::comm
