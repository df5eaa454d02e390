#include "parallel/comm/nccl_plan.h"

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

using Kind = NcclCall::Kind;

template <typename Pointer>
Pointer element(Pointer data, int64_t index, DType dtype) {
  using Char = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Char*>(data) + index * size_of(dtype);
}

/// The element count that every rank has in contiguous parts from `begin`, and the surplus of the last part; a count of
/// -1 if the parts have another form.
struct EqualParts {
  int64_t begin = 0, count = -1, rest = 0;
};

EqualParts equal_parts(std::span<const Range> parts) {
  const int64_t begin = parts.front().begin, count = parts.front().size();
  for (size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].begin != begin + static_cast<int64_t>(r) * count) return {};
    if (r + 1 < parts.size() && parts[r].size() != count) return {};
  }
  if (parts.back().size() < count) return {};
  return {.begin = begin, .count = count, .rest = parts.back().size() - count};
}

// In-place data has equal addresses on both sides, as NCCL requires for in-place operation.
std::vector<NcclCall> plan(const ReduceScatter& a, int rank, int ranks) {
  std::vector<NcclCall> calls;
  const DType dtype = a.in.dtype;
  const EqualParts equal = equal_parts(a.parts);
  const int last = ranks - 1;
  if (equal.count > 0) {
    calls.push_back({.kind = Kind::kReduceScatter,
                     .send = element(a.in.data, equal.begin, dtype),
                     .recv = a.out.data,
                     .count = equal.count,
                     .dtype = dtype});
  }
  if (equal.count >= 0) {
    if (equal.rest > 0) {
      calls.push_back({.kind = Kind::kReduce,
                       .send = element(a.in.data, a.parts.back().end - equal.rest, dtype),
                       .recv = rank == last ? element(a.out.data, equal.count, dtype) : nullptr,
                       .count = equal.rest,
                       .dtype = dtype,
                       .peer = last});
    }
    return calls;
  }
  for (int root = 0; root < ranks; ++root) {
    const Range& part = a.parts[static_cast<size_t>(root)];
    if (part.size() == 0) continue;
    calls.push_back({.kind = Kind::kReduce,
                     .send = element(a.in.data, part.begin, dtype),
                     .recv = root == rank ? a.out.data : nullptr,
                     .count = part.size(),
                     .dtype = dtype,
                     .peer = root});
  }
  return calls;
}

std::vector<NcclCall> plan(const AllGather& a, int rank, int ranks) {
  std::vector<NcclCall> calls;
  const DType dtype = a.out.dtype;
  const auto from_root = [&](int root, int64_t offset, const Range& range) {
    void* const place = element(a.out.data, range.begin, dtype);
    calls.push_back({.kind = Kind::kBroadcast,
                     .send = root == rank ? element(a.in.data, offset, dtype) : place,
                     .recv = place,
                     .count = range.size(),
                     .dtype = dtype,
                     .peer = root});
  };
  const EqualParts equal = equal_parts(a.parts);
  if (equal.count > 0) {
    calls.push_back({.kind = Kind::kAllGather,
                     .send = a.in.data,
                     .recv = element(a.out.data, equal.begin, dtype),
                     .count = equal.count,
                     .dtype = dtype});
  }
  if (equal.count >= 0) {
    if (equal.rest > 0)
      from_root(ranks - 1, equal.count, {.begin = a.parts.back().end - equal.rest, .end = a.parts.back().end});
    return calls;
  }
  for (int root = 0; root < ranks; ++root) {
    const Range& part = a.parts[static_cast<size_t>(root)];
    if (part.size() > 0) from_root(root, 0, part);
  }
  return calls;
}

std::vector<NcclCall> message(const ConstView* sent, int to, const MutView* received, int from) {
  std::vector<NcclCall> calls;
  if (sent != nullptr && sent->size() > 0)
    calls.push_back({.kind = Kind::kSend, .send = sent->data, .count = sent->size(), .dtype = sent->dtype, .peer = to});
  if (received != nullptr && received->size() > 0)
    calls.push_back({.kind = Kind::kRecv,
                     .recv = received->data,
                     .count = received->size(),
                     .dtype = received->dtype,
                     .peer = from});
  return calls;
}

std::vector<NcclCall> plan(const AllToAll& a) {
  std::vector<NcclCall> calls;
  for (size_t rank = 0; rank < a.send_parts.size(); ++rank) {
    const ConstView sent = part_of(a.send, a.send_parts[rank]);
    const MutView received = part_of(a.recv, a.recv_parts[rank]);
    const std::vector<NcclCall> pair = message(&sent, static_cast<int>(rank), &received, static_cast<int>(rank));
    calls.insert(calls.end(), pair.begin(), pair.end());
  }
  return calls;
}

nccl::Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return nccl::Type::kFloat32;
    case DType::kBFloat16: return nccl::Type::kBfloat16;
    case DType::kFloat64: return nccl::Type::kFloat64;
    case DType::kInt32: return nccl::Type::kInt32;
    case DType::kInt64: return nccl::Type::kInt64;
    case DType::kUInt8: return nccl::Type::kUint8;
  }
  throw Bug("[nccl] unknown dtype");
}

}  // namespace

std::vector<NcclCall> plan_nccl_calls(const DeviceOperation& args, int rank, int ranks) {
  using Calls = std::vector<NcclCall>;
  return std::visit(
      Cases{[&](const AllReduce& a) -> Calls {
              if (a.in.size() == 0) return {};
              return {{.kind = Kind::kAllReduce,
                       .send = a.in.data,
                       .recv = a.out.data,
                       .count = a.in.size(),
                       .dtype = a.in.dtype,
                       .op = a.op}};
            },
            [&](const ReduceScatter& a) { return plan(a, rank, ranks); },
            [&](const AllGather& a) { return plan(a, rank, ranks); }, [&](const AllToAll& a) { return plan(a); },
            [&](const Broadcast& a) -> Calls {
              if (a.data.size() == 0) return {};
              return {{.kind = Kind::kBroadcast,
                       .send = a.data.data,
                       .recv = a.data.data,
                       .count = a.data.size(),
                       .dtype = a.data.dtype,
                       .peer = a.root}};
            },
            [&](const Send& a) { return message(&a.data, a.to, nullptr, -1); },
            [&](const Recv& a) { return message(nullptr, -1, &a.data, a.from); },
            [&](const SendRecv& a) { return message(&a.send, a.to, &a.recv, a.from); },
            [&](const Barrier&) -> Calls { throw Bug("[nccl] a barrier has no plan"); }},
      args);
}

nccl::Result make_call(const nccl::Api& api, const NcclCall& call, nccl::Comm comm, nccl::Stream stream) {
  const auto count = static_cast<size_t>(call.count);
  const nccl::Type type = type_of(call.dtype);
  const nccl::RedOp op = call.op == ReduceOp::kSum ? nccl::RedOp::kSum : nccl::RedOp::kMax;
  switch (call.kind) {
    case Kind::kAllReduce: return api.AllReduce(call.send, call.recv, count, type, op, comm, stream);
    case Kind::kReduceScatter: return api.ReduceScatter(call.send, call.recv, count, type, op, comm, stream);
    case Kind::kReduce: return api.Reduce(call.send, call.recv, count, type, op, call.peer, comm, stream);
    case Kind::kAllGather: return api.AllGather(call.send, call.recv, count, type, comm, stream);
    case Kind::kBroadcast: return api.Broadcast(call.send, call.recv, count, type, call.peer, comm, stream);
    case Kind::kSend: return api.Send(call.send, count, type, call.peer, comm, stream);
    case Kind::kRecv: return api.Recv(call.recv, count, type, call.peer, comm, stream);
  }
  throw Bug("[nccl] unknown call");
}

}  // namespace ashlar::comm
