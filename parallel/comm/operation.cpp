#include "parallel/comm/operation.h"

#include "core/base/fixed_text.h"

namespace ashlar::comm {

std::string_view describe(const OperationInfo& info, std::string_view communicator, std::span<char> memory) {
  FixedText text(memory);
  text.add(name_of(info.kind));
  if (info.kind == OperationKind::kNone) return text.text();
  if (info.kind == OperationKind::kAllReduce) text.add(info.op == ReduceOp::kSum ? " sum" : " max");
  const auto add_vector = [&](DType dtype, int64_t size) { text.add(name_of(dtype)).add("[").add(size).add("]"); };
  const bool host = info.kind >= OperationKind::kHostReduce;
  if (host) {
    if (info.label[0] != '\0') text.add(" '").add(info.label.data()).add("'");
    if (info.size > 0) text.add(" of ").add(info.size).add(" bytes");
  } else if (info.kind != OperationKind::kBarrier) {
    text.add(" ");
    add_vector(info.dtype, info.size);
  }
  switch (info.kind) {
    case OperationKind::kBroadcast:
    case OperationKind::kHostBroadcast: text.add(" from root ").add(info.peer); break;
    case OperationKind::kHostGather:
      if (info.peer >= 0) text.add(" to root ").add(info.peer);
      break;
    case OperationKind::kSend: text.add(" to ").add(info.peer); break;
    case OperationKind::kRecv: text.add(" from ").add(info.peer); break;
    case OperationKind::kAllToAll:
      if (info.peer < 0) {
        text.add(" sent, ");
        add_vector(info.recv_dtype, info.recv_size);
        text.add(" received");
        break;
      }
      [[fallthrough]];
    case OperationKind::kSendRecv:
      text.add(" to ").add(info.peer).add(", ");
      add_vector(info.recv_dtype, info.recv_size);
      text.add(" from ").add(info.recv_peer);
      break;
    default: break;
  }
  return text.add(" on ").add(communicator).add(", operation ").add(info.number).text();
}

std::string describe(const OperationInfo& info, std::string_view communicator) {
  std::string text(communicator.size() + 200, '\0');
  text.resize(describe(info, communicator, text).size());
  return text;
}

}  // namespace ashlar::comm
