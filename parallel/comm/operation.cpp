#include "parallel/comm/operation.h"

#include "core/base/error.h"

namespace ashlar::comm {

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kNone: return "nothing";
    case OperationKind::kAllReduce: return "all_reduce";
    case OperationKind::kReduceScatter: return "reduce_scatter";
    case OperationKind::kAllGather: return "all_gather";
    case OperationKind::kBroadcast: return "broadcast";
    case OperationKind::kSend: return "send";
    case OperationKind::kRecv: return "recv";
    case OperationKind::kSendRecv: return "send_recv";
    case OperationKind::kBarrier: return "barrier";
  }
  throw Bug("[comm] unknown kind of operation");
}

std::string describe(const OperationInfo& info, std::string_view communicator) {
  std::string text(name_of(info.kind));
  if (info.kind == OperationKind::kNone) return text;
  if (info.kind == OperationKind::kAllReduce) text += info.op == ReduceOp::kSum ? " sum" : " max";
  if (info.kind != OperationKind::kBarrier) text += str_cat(" ", name_of(info.dtype), "[", info.size, "]");
  switch (info.kind) {
    case OperationKind::kBroadcast: text += str_cat(" from root ", info.peer); break;
    case OperationKind::kSend: text += str_cat(" to ", info.peer); break;
    case OperationKind::kRecv: text += str_cat(" from ", info.peer); break;
    case OperationKind::kSendRecv:
      text +=
          str_cat(" to ", info.peer, ", ", name_of(info.recv_dtype), "[", info.recv_size, "] from ", info.recv_peer);
      break;
    default: break;
  }
  return str_cat(text, " on ", communicator, ", operation ", info.number);
}

}  // namespace ashlar::comm
