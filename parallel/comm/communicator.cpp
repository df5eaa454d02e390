#include "parallel/comm/communicator.h"

#include <exception>
#include <utility>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

int64_t bytes_of(const ConstView& view) { return view.size() * size_of(view.dtype); }

void check_view(const ConstView& view, const char* what) {
  ASHLAR_CHECK(view.rows >= 0 && view.cols >= 0 && (view.data != nullptr || view.size() == 0), what, " [", view.rows,
               ", ", view.cols, "] has no memory");
  ASHLAR_CHECK(view.contiguous(), what, " has rows of ", view.cols, " elements ", view.stride,
               " apart, expected contiguous rows; pack it first");
}

void check_same_dtype(const ConstView& in, const ConstView& out) {
  ASHLAR_CHECK(in.dtype == out.dtype, "in is ", name_of(in.dtype), ", out is ", name_of(out.dtype));
}

void check_reducible(DType dtype) {
  ASHLAR_CHECK(is_floating(dtype) || dtype == DType::kInt32, "expected fp64, fp32, bf16 or int32 for a reduction, got ",
               name_of(dtype));
}

// Checks that `in` and `out` are disjoint, unless the operation is in place. The caller passes two
// addresses, `wanted_in` and `wanted_out`, that are equal exactly when the operation is in place.
void check_apart_or_at(const void* in, int64_t in_bytes, const void* out, int64_t out_bytes, const void* wanted_in,
                       const void* wanted_out) {
  if (in_bytes == 0 || out_bytes == 0 || wanted_in == wanted_out) return;
  const auto* a = static_cast<const char*>(in);
  const auto* b = static_cast<const char*>(out);
  ASHLAR_CHECK(std::less_equal<>()(a + in_bytes, b) || std::less_equal<>()(b + out_bytes, a),
               "in and out overlap, expected them disjoint or exactly in place");
}

const void* at(const ConstView& view, int64_t element) {
  return static_cast<const char*>(view.data) + element * size_of(view.dtype);
}

// Returns the caller's ranges (`parts`, one per rank) after validation. If the caller gives none, returns equal ranges,
// which are stored in `equal`.
std::span<const Range> parts_or_equal(std::span<const Range> parts, int64_t size, int ranks,
                                      std::vector<Range>& equal) {
  if (parts.empty()) {
    ASHLAR_CHECK(size % ranks == 0, size, " elements cannot be split into ", ranks, " equal parts; give parts");
    equal = even_ranges(size, ranks);
    return equal;
  }
  ASHLAR_CHECK(static_cast<int>(parts.size()) == ranks, "expected one part per rank, got ", parts.size(), " parts for ",
               ranks, " ranks");
  check_ranges(parts, size);
  return parts;
}

}  // namespace

Work::Work(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<Operation> operation)
    : engine_(std::move(engine)), operation_(std::move(operation)) {}

Work& Work::operator=(Work&& other) noexcept {
  release();
  engine_ = std::move(other.engine_);
  operation_ = std::move(other.operation_);
  return *this;
}

// The engine is null if Work::wait(stream) has already made a stream wait for the operation.
void Work::release() noexcept {
  if (operation_ == nullptr || engine_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {
    if (operation_->state() == Operation::State::kPending) engine_->abandon();
    return;
  }
  if (operation_->state() == Operation::State::kPending) engine_->wait_quietly(*operation_);
  if (operation_->state() != Operation::State::kDone) return;
  if (Event* const event = operation_->completion()) event->synchronize();
}

void Work::wait() {
  if (operation_ == nullptr) return;
  if (engine_ != nullptr) engine_->wait(*operation_);
  if (Event* const event = operation_->completion()) event->synchronize();
}

void Work::wait(Stream& stream) {
  if (operation_ == nullptr) return;
  if (engine_ != nullptr) engine_->wait(*operation_);
  if (Event* const event = operation_->completion()) stream.wait_for(*event);
  engine_ = nullptr;
}

void Work::wait_received(Stream& stream) {
  if (operation_ == nullptr) return;
  if (engine_ != nullptr) engine_->wait(*operation_, ProgressEngine::Until::kReceived);
  if (Event* const event = operation_->completion()) stream.wait_for(*event);
}

bool Work::done() {
  if (!ready()) engine_->progress();
  return ready();
}

Communicator::Communicator(int rank, int size, std::string name, std::shared_ptr<ProgressEngine> engine)
    : rank_(rank),
      size_(size),
      name_(std::make_shared<const std::string>(std::move(name))),
      engine_(std::move(engine)) {}

void Communicator::note(OperationInfo info) {
  info.number = issued_++;
  last_ = info;
  engine_->note(info, name_);
}

Work Communicator::launch(const DeviceOperation& args, Stream& stream) {
  OperationPtr operation = make(args, stream);
  if (operation == nullptr) return {};
  engine_->submit(operation, last_, name_);
  return {engine_, std::move(operation)};
}

void Communicator::check_on_host(const Stream& stream) const {
  ASHLAR_CHECK(stream.synchronous(), *name_, " reads host memory immediately, but the stream is asynchronous; use a",
               " communicator of the backend (StagedComm)");
}

void Communicator::check_peer(int peer) const {
  ASHLAR_CHECK(peer >= 0 && peer < size_, "rank ", peer, " is not in ", *name_, ", which has ", size_, " ranks");
}

Work Communicator::all_reduce(const AllReduce& args, Stream& stream) {
  note({.kind = OperationKind::kAllReduce, .op = args.op, .dtype = args.in.dtype, .size = args.in.size()});
  check_view(args.in, "in");
  check_view(args.out, "out");
  check_same_dtype(args.in, args.out);
  check_reducible(args.in.dtype);
  ASHLAR_CHECK(args.op == ReduceOp::kSum || args.op == ReduceOp::kMax,
               "expected .op of the all_reduce to be kSum or kMax, got none");
  ASHLAR_CHECK(args.in.size() == args.out.size(), "in has ", args.in.size(), " elements, out ", args.out.size());
  check_apart_or_at(args.in.data, bytes_of(args.in), args.out.data, bytes_of(args.out), args.in.data, args.out.data);
  return launch(args, stream);
}

Work Communicator::reduce_scatter(const ReduceScatter& args, Stream& stream) {
  note({.kind = OperationKind::kReduceScatter, .dtype = args.in.dtype, .size = args.in.size()});
  check_view(args.in, "in");
  check_view(args.out, "out");
  check_same_dtype(args.in, args.out);
  check_reducible(args.in.dtype);
  std::vector<Range> equal;
  ReduceScatter full = args;
  full.parts = parts_or_equal(args.parts, args.in.size(), size_, equal);
  const Range mine = full.parts[static_cast<size_t>(rank_)];
  ASHLAR_CHECK(args.out.size() == mine.size(), "out has ", args.out.size(), " elements, this rank's part ",
               mine.size());
  check_apart_or_at(args.in.data, bytes_of(args.in), args.out.data, bytes_of(args.out), at(args.in, mine.begin),
                    args.out.data);
  return launch(full, stream);
}

Work Communicator::all_gather(const AllGather& args, Stream& stream) {
  note({.kind = OperationKind::kAllGather, .dtype = args.out.dtype, .size = args.out.size()});
  check_view(args.in, "in");
  check_view(args.out, "out");
  check_same_dtype(args.in, args.out);
  std::vector<Range> equal;
  AllGather full = args;
  full.parts = parts_or_equal(args.parts, args.out.size(), size_, equal);
  const Range mine = full.parts[static_cast<size_t>(rank_)];
  ASHLAR_CHECK(args.in.size() == mine.size(), "in has ", args.in.size(), " elements, this rank's part ", mine.size());
  check_apart_or_at(args.in.data, bytes_of(args.in), args.out.data, bytes_of(args.out), args.in.data,
                    at(args.out, mine.begin));
  return launch(full, stream);
}

Work Communicator::all_to_all(const AllToAll& args, Stream& stream) {
  note({.kind = OperationKind::kAllToAll,
        .dtype = args.send.dtype,
        .size = args.send.size(),
        .recv_dtype = args.recv.dtype,
        .recv_size = args.recv.size()});
  check_view(args.send, "send");
  check_view(args.recv, "recv");
  check_same_dtype(args.send, args.recv);
  std::vector<Range> equal_sent, equal_received;
  AllToAll full = args;
  full.send_parts = parts_or_equal(args.send_parts, args.send.size(), size_, equal_sent);
  full.recv_parts = parts_or_equal(args.recv_parts, args.recv.size(), size_, equal_received);
  const auto me = static_cast<size_t>(rank_);
  ASHLAR_CHECK(full.send_parts[me].size() == full.recv_parts[me].size(), "rank ", rank_, " sends itself ",
               full.send_parts[me].size(), " elements and receives ", full.recv_parts[me].size());
  check_apart_or_at(args.send.data, bytes_of(args.send), args.recv.data, bytes_of(args.recv), args.send.data, nullptr);
  return launch(full, stream);
}

Work Communicator::broadcast(const Broadcast& args, Stream& stream) {
  note({.kind = OperationKind::kBroadcast, .dtype = args.data.dtype, .size = args.data.size(), .peer = args.root});
  check_view(args.data, "data");
  check_peer(args.root);
  return launch(args, stream);
}

Work Communicator::send(const Send& args, Stream& stream) {
  note({.kind = OperationKind::kSend, .dtype = args.data.dtype, .size = args.data.size(), .peer = args.to});
  check_view(args.data, "data");
  check_peer(args.to);
  return launch(args, stream);
}

Work Communicator::recv(const Recv& args, Stream& stream) {
  note({.kind = OperationKind::kRecv, .dtype = args.data.dtype, .size = args.data.size(), .peer = args.from});
  check_view(args.data, "data");
  check_peer(args.from);
  return launch(args, stream);
}

Work Communicator::send_recv(const SendRecv& args, Stream& stream) {
  note({.kind = OperationKind::kSendRecv,
        .dtype = args.send.dtype,
        .size = args.send.size(),
        .peer = args.to,
        .recv_dtype = args.recv.dtype,
        .recv_size = args.recv.size(),
        .recv_peer = args.from});
  check_view(args.send, "send");
  check_view(args.recv, "recv");
  check_peer(args.to);
  check_peer(args.from);
  check_apart_or_at(args.send.data, bytes_of(args.send), args.recv.data, bytes_of(args.recv), args.send.data, nullptr);
  return launch(args, stream);
}

Work Communicator::barrier(Stream& stream) {
  note({.kind = OperationKind::kBarrier});
  return launch(Barrier{}, stream);
}

Work Communicator::issue(const DeviceOperation& args, Stream& stream) {
  return std::visit(
      Cases{[&](const AllReduce& a) { return all_reduce(a, stream); },
            [&](const ReduceScatter& a) { return reduce_scatter(a, stream); },
            [&](const AllGather& a) { return all_gather(a, stream); },
            [&](const AllToAll& a) { return all_to_all(a, stream); },
            [&](const Broadcast& a) { return broadcast(a, stream); }, [&](const Send& a) { return send(a, stream); },
            [&](const Recv& a) { return recv(a, stream); }, [&](const SendRecv& a) { return send_recv(a, stream); },
            [&](const Barrier&) { return barrier(stream); }},
      args);
}

std::unique_ptr<Communicator> Communicator::split(const Split& args) {
  engine_->progress();  // detects operations completed on the device
  ASHLAR_CHECK(engine_->idle(), "expected no pending operations in the split of ", *name_, ", got ",
               engine_->last_operation());
  return make_split(args);
}

}  // namespace ashlar::comm
