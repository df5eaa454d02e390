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

/// Contiguous parts that start at element `begin`. Each part has `count` elements, and the last part has `rest` more.
/// `count` is -1 if the parts are not of this form.
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

/// Calls equal(begin, count) once for all equal parts, and single(rank, offset, range) for each remaining range. The
/// range begins at element `offset` of the part of `rank`.
template <typename Equal, typename Single>
void for_each_part(std::span<const Range> parts, const Equal& equal, const Single& single) {
  const EqualParts same = equal_parts(parts);
  const int ranks = static_cast<int>(parts.size());
  if (same.count > 0) equal(same.begin, same.count);
  if (same.rest > 0) single(ranks - 1, same.count, Range{parts.back().end - same.rest, parts.back().end});
  for (int rank = 0; rank < ranks && same.count < 0; ++rank) {
    const Range& part = parts[static_cast<size_t>(rank)];
    if (part.size() > 0) single(rank, int64_t{0}, part);
  }
}

// For in-place data the addresses are as NCCL requires: recv = send in a reduce, and recv = send + rank * count in a
// reduce-scatter.
std::vector<NcclCall> plan(const ReduceScatter& a, int rank) {
  std::vector<NcclCall> calls;
  const DType dtype = a.in.dtype;
  const auto scatter = [&](int64_t begin, int64_t count) {
    calls.push_back({.kind = Kind::kReduceScatter,
                     .send = element(a.in.data, begin, dtype),
                     .recv = a.out.data,
                     .count = count,
                     .dtype = dtype});
  };
  const auto to_root = [&](int root, int64_t offset, const Range& range) {
    calls.push_back({.kind = Kind::kReduce,
                     .send = element(a.in.data, range.begin, dtype),
                     .recv = root == rank ? element(a.out.data, offset, dtype) : nullptr,
                     .count = range.size(),
                     .dtype = dtype,
                     .peer = root});
  };
  for_each_part(a.parts, scatter, to_root);
  return calls;
}

std::vector<NcclCall> plan(const AllGather& a, int rank) {
  std::vector<NcclCall> calls;
  const DType dtype = a.out.dtype;
  const auto gather = [&](int64_t begin, int64_t count) {
    calls.push_back({.kind = Kind::kAllGather,
                     .send = a.in.data,
                     .recv = element(a.out.data, begin, dtype),
                     .count = count,
                     .dtype = dtype});
  };
  const auto from_root = [&](int root, int64_t offset, const Range& range) {
    void* const place = element(a.out.data, range.begin, dtype);
    calls.push_back({.kind = Kind::kBroadcast,
                     .send = root == rank ? element(a.in.data, offset, dtype) : place,
                     .recv = place,
                     .count = range.size(),
                     .dtype = dtype,
                     .peer = root});
  };
  for_each_part(a.parts, gather, from_root);
  return calls;
}

/// Adds a send and a receive, each only if its view is not empty.
void add_messages(std::vector<NcclCall>& calls, const SendRecv& a) {
  if (a.send.size() > 0)
    calls.push_back(
        {.kind = Kind::kSend, .send = a.send.data, .count = a.send.size(), .dtype = a.send.dtype, .peer = a.to});
  if (a.recv.size() > 0)
    calls.push_back(
        {.kind = Kind::kRecv, .recv = a.recv.data, .count = a.recv.size(), .dtype = a.recv.dtype, .peer = a.from});
}

std::vector<NcclCall> plan(const AllToAll& a) {
  std::vector<NcclCall> calls;
  for (size_t rank = 0; rank < a.send_parts.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    add_messages(calls, {.send = part_of(a.send, a.send_parts[rank]),
                         .to = peer,
                         .recv = part_of(a.recv, a.recv_parts[rank]),
                         .from = peer});
  }
  return calls;
}

std::vector<NcclCall> plan(const SendRecv& a) {
  std::vector<NcclCall> calls;
  add_messages(calls, a);
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

std::vector<NcclCall> plan_nccl_calls(const DeviceOperation& args, int rank) {
  using Calls = std::vector<NcclCall>;
  return std::visit(Cases{[&](const AllReduce& a) -> Calls {
                            if (a.in.size() == 0) return {};
                            return {{.kind = Kind::kAllReduce,
                                     .send = a.in.data,
                                     .recv = a.out.data,
                                     .count = a.in.size(),
                                     .dtype = a.in.dtype,
                                     .op = a.op}};
                          },
                          [&](const ReduceScatter& a) { return plan(a, rank); },
                          [&](const AllGather& a) { return plan(a, rank); }, [&](const AllToAll& a) { return plan(a); },
                          [&](const Broadcast& a) -> Calls {
                            if (a.data.size() == 0) return {};
                            return {{.kind = Kind::kBroadcast,
                                     .send = a.data.data,
                                     .recv = a.data.data,
                                     .count = a.data.size(),
                                     .dtype = a.data.dtype,
                                     .peer = a.root}};
                          },
                          [](const Send& a) { return plan({.send = a.data, .to = a.to, .recv = {}}); },
                          [](const Recv& a) { return plan({.send = {}, .recv = a.data, .from = a.from}); },
                          [](const SendRecv& a) { return plan(a); },
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
