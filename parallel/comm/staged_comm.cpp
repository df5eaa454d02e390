// 1. On issue: an event records the position of the caller's stream; the stream to_host waits for the event and copies
// the sent data into a block of pinned memory.
// 2. When that copy is complete (polled, not waited for) and earlier operations have started, the inner operation
// starts on the block.
// 3. When the inner operation has received everything, the copies back are queued on the stream from_host, and an event
// after them marks the operation's completion. The block is reused when the device has reached that event.
#include "parallel/comm/staged_comm.h"

#include <deque>
#include <list>
#include <utility>
#include <vector>

namespace ashlar::comm {

namespace {

/// A block of pinned memory. `free` is the event of the device's last use of the block.
struct Block {
  char* data = nullptr;
  int64_t bytes = 0;
  std::unique_ptr<Event> free;
  bool in_use = false;
};

template <typename View>
View at(View view, char* data) {
  const int64_t size = view.size();
  return {data, view.dtype, 1, size, size};
}

}  // namespace

struct StagedComm::Shared {
  std::shared_ptr<Communicator> inner;
  Backend& backend;
  std::unique_ptr<Stream> to_host, from_host;
  SynchronousStream host;                      ///< stream of the inner communicator's operations
  std::deque<const StagedOperation*> waiting;  ///< operations not started, in order of issue
  std::list<Block> blocks;

  Shared(std::shared_ptr<Communicator> of, Backend& on)
      : inner(std::move(of)), backend(on), to_host(on.make_stream()), from_host(on.make_stream()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    for (Block& block : blocks) backend.allocator(MemoryKind::kPinned).release(block.data);
  }

  Block& acquire(int64_t bytes) {
    Block* best = nullptr;
    for (Block& block : blocks) {
      if (block.in_use || block.bytes < bytes || !block.free->reached()) continue;
      if (best == nullptr || block.bytes < best->bytes) best = &block;
    }
    if (best == nullptr) {
      blocks.push_back({.data = static_cast<char*>(backend.allocator(MemoryKind::kPinned).allocate(bytes)),
                        .bytes = bytes,
                        .free = backend.make_event()});
      best = &blocks.back();
    }
    best->in_use = true;
    return *best;
  }
};

class StagedComm::StagedOperation final : public Operation {
 public:
  StagedOperation(std::shared_ptr<Shared> shared, const DeviceOperation& args, Stream& stream)
      : shared_(std::move(shared)), copied_(shared_->backend.make_event()), done_(shared_->backend.make_event()) {
    const std::unique_ptr<Event> begun = shared_->backend.make_event();
    stream.record(*begun);
    shared_->to_host->wait_for(*begun);
    shared_->from_host->wait_for(*begun);  // earlier work may use the output until `begun`
    std::visit([&](const auto& a) { stage(a); }, args);
    shared_->to_host->record(*copied_);
    shared_->waiting.push_back(this);
  }
  ~StagedOperation() override {
    std::erase(shared_->waiting, this);
    for (Block* block : blocks_) block->in_use = false;
  }

  bool advance() override {
    if (!begun_) {
      if (shared_->waiting.front() != this || !copied_->reached()) return false;
      shared_->waiting.pop_front();
      begun_ = true;
      work_ = shared_->inner->issue(staged_, shared_->host);
    }
    if (!returned_ && work_.received()) {
      returned_ = true;
      shared_->from_host->wait_for(*copied_);  // so that done_ also means that sent buffers may be reused
      for (const Return& r : returns_) shared_->backend.copy_from_host(r.from, r.to, *shared_->from_host);
      shared_->from_host->record(*done_);
      for (Block* block : blocks_) shared_->from_host->record(*block->free);
    }
    return returned_ && work_.ready();
  }
  bool received() const override { return returned_; }
  Event* completion() override { return returned_ ? done_.get() : nullptr; }
  bool stuck() const override { return begun_ && work_.stuck(); }

 private:
  struct Return {
    const char* from;
    MutView to;
  };

  char* block_for(const ConstView& view) {
    Block& block = shared_->acquire(std::max<int64_t>(view.size() * size_of(view.dtype), 1));
    blocks_.push_back(&block);
    return block.data;
  }
  void bring(const ConstView& view, char* to) {
    if (view.size() > 0) shared_->backend.copy_to_host(view, to, *shared_->to_host);
  }
  void give_back(const char* from, const MutView& view) {
    if (view.size() > 0) returns_.push_back({from, view});
  }
  Range own(std::span<const Range> parts) {
    parts_.assign(parts.begin(), parts.end());  // a copy, since the inner operation starts later
    return parts_[static_cast<size_t>(shared_->inner->rank())];
  }

  void stage(const AllReduce& a) {
    char* const place = block_for(a.in);
    bring(a.in, place);
    staged_ = AllReduce{.in = at(a.in, place), .out = at(a.out, place), .op = a.op};
    give_back(place, a.out);
  }
  void stage(const ReduceScatter& a) {
    char* const place = block_for(a.in);
    bring(a.in, place);
    const Range mine = own(a.parts);
    const MutView all = at(MutView{place, a.in.dtype, 1, a.in.size(), a.in.size()}, place);
    const MutView part = part_of(all, mine);
    staged_ = ReduceScatter{.in = at(a.in, place), .out = part, .parts = parts_};
    give_back(static_cast<const char*>(part.data), a.out);
  }
  void stage(const AllGather& a) {
    char* const place = block_for(a.out);
    const Range mine = own(a.parts);
    const MutView all = at(a.out, place);
    const MutView part = part_of(all, mine);
    bring(a.in, static_cast<char*>(part.data));
    staged_ = AllGather{.in = part, .out = all, .parts = parts_};
    for (size_t rank = 0; rank < parts_.size(); ++rank) {  // gaps between the parts stay unchanged
      const Range& range = parts_[rank];
      const MutView to = part_of(a.out, range);
      if (rank == static_cast<size_t>(shared_->inner->rank()) && to.data == a.in.data) continue;
      give_back(place + range.begin * size_of(a.out.dtype), to);
    }
  }
  void stage(const AllToAll& a) {
    char* const out = block_for(a.send);
    char* const in = block_for(a.recv);
    parts_.assign(a.send_parts.begin(), a.send_parts.end());
    recv_parts_.assign(a.recv_parts.begin(), a.recv_parts.end());
    const int64_t element = size_of(a.send.dtype);
    for (const Range& part : parts_) bring(part_of(a.send, part), out + part.begin * element);
    for (const Range& part : recv_parts_) give_back(in + part.begin * element, part_of(a.recv, part));
    staged_ =
        AllToAll{.send = at(a.send, out), .recv = at(a.recv, in), .send_parts = parts_, .recv_parts = recv_parts_};
  }
  void stage(const Broadcast& a) {
    char* const place = block_for(a.data);
    const bool root = a.root == shared_->inner->rank();
    if (root) bring(a.data, place);
    staged_ = Broadcast{.data = at(a.data, place), .root = a.root};
    if (!root) give_back(place, a.data);
  }
  void stage(const Send& a) {
    char* const place = block_for(a.data);
    bring(a.data, place);
    staged_ = Send{.data = at(a.data, place), .to = a.to};
  }
  void stage(const Recv& a) {
    char* const place = block_for(a.data);
    staged_ = Recv{.data = at(a.data, place), .from = a.from};
    give_back(place, a.data);
  }
  void stage(const SendRecv& a) {
    char* const out = block_for(a.send);
    char* const in = block_for(a.recv);
    bring(a.send, out);
    staged_ = SendRecv{.send = at(a.send, out), .to = a.to, .recv = at(a.recv, in), .from = a.from};
    give_back(in, a.recv);
  }
  void stage(const Barrier& a) { staged_ = a; }

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Event> copied_, done_;
  std::vector<Block*> blocks_;
  std::vector<Range> parts_, recv_parts_;
  DeviceOperation staged_;
  std::vector<Return> returns_;
  Work work_;
  bool begun_ = false, returned_ = false;
};

/// An operation of a single rank, queued on the caller's stream.
class StagedComm::OnDevice final : public Operation {
 public:
  OnDevice(Backend& backend, Stream& stream) : done_(backend.make_event()) { stream.record(*done_); }
  bool advance() override { return true; }
  Event* completion() override { return done_.get(); }

 private:
  std::unique_ptr<Event> done_;
};

StagedComm::StagedComm(Communicator& inner, Backend& backend)
    : StagedComm(std::make_shared<Shared>(std::shared_ptr<Communicator>(&inner, [](Communicator*) {}), backend)) {}

StagedComm::StagedComm(std::unique_ptr<Communicator> inner, Backend& backend)
    : StagedComm(std::make_shared<Shared>(std::shared_ptr<Communicator>(std::move(inner)), backend)) {}

StagedComm::StagedComm(std::shared_ptr<Shared> shared)
    : Communicator(shared->inner->rank(), shared->inner->size(), shared->inner->name(), shared->inner->engine()),
      shared_(std::move(shared)) {}

StagedComm::~StagedComm() = default;

Communicator& StagedComm::host() { return *shared_->inner; }

Communicator::OperationPtr StagedComm::make_alone(const DeviceOperation& args, Stream& stream) {
  const auto copy = [&](const ConstView& from, const MutView& to) -> OperationPtr {
    if (from.data == to.data || from.size() == 0) return nullptr;
    shared_->backend.copy({.src = flat_range(from, 0, from.size()), .dst = flat_range(to, 0, to.size())}, stream);
    return std::make_shared<OnDevice>(shared_->backend, stream);
  };
  return std::visit(
      Cases{[&](const AllReduce& a) { return copy(a.in, a.out); },
            [&](const ReduceScatter& a) { return copy(part_of(a.in, a.parts[0]), a.out); },
            [&](const AllGather& a) { return copy(a.in, part_of(a.out, a.parts[0])); },
            [&](const AllToAll& a) { return copy(part_of(a.send, a.send_parts[0]), part_of(a.recv, a.recv_parts[0])); },
            [&](const Broadcast&) -> OperationPtr { return nullptr; },
            [&](const Barrier&) -> OperationPtr { return nullptr; },
            [&](const auto&) -> OperationPtr { return std::make_shared<StagedOperation>(shared_, args, stream); }},
      args);
}

Communicator::OperationPtr StagedComm::make(const DeviceOperation& args, Stream& stream) {
  if (size() == 1) return make_alone(args, stream);
  return std::make_shared<StagedOperation>(shared_, args, stream);
}

std::unique_ptr<Communicator> StagedComm::make_split(const Split& args) {
  std::unique_ptr<Communicator> part = shared_->inner->split(args);
  if (part == nullptr) return part;
  return std::make_unique<StagedComm>(std::move(part), shared_->backend);
}

std::unique_ptr<Communicator> make_device_comm(Communicator& host, Backend& backend) {
  if (backend.make_stream()->synchronous()) return nullptr;
  return std::make_unique<StagedComm>(host, backend);
}

}  // namespace ashlar::comm
